"""Requests without a context leg: the fall-back when no context worker is left, and the generation-only benchmark."""

import contextlib

import httpx
import pytest
from e2e_bodies import answer_text, chat, completion
from e2e_server import ServerThread
from e2e_stack import settings_for
from program import eventually

from proxy.config.load import load_settings
from proxy.sim import ThreadedSimCluster, expected_text


@pytest.fixture
def cluster():
    with ThreadedSimCluster(context=1, generation=2) as cluster:
        yield cluster


@contextlib.contextmanager
def serve(cluster, **overrides):
    settings = settings_for(
        cluster.context_urls, cluster.generation_urls, probe_interval=0.05, eject_after=1, **overrides
    )
    server = ServerThread(settings, "own").start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("body", [chat(), completion()], ids=["chat", "completions"])
def test_generation_workers_prefill_when_no_context_worker_is_left(cluster, body):
    cluster.call(cluster.context_workers[0].refuse())
    with serve(cluster, fallback_aggregated="context_down") as server:
        eventually(lambda: server.service.ready, what="readiness")
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as http:
            path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            response = http.post(path, json=body)
            assert response.status_code == 200
            assert answer_text(response.json()) == expected_text(body)
            (seen,) = [r for w in cluster.generation_workers for r in w.requests if r.path == path]
            assert "disaggregated_params" not in seen.json()
            metrics = http.get("/metrics").text
    assert 'disagg_proxy_bypasses_total{reason="context_down"} 1.0' in metrics


def test_without_the_fall_back_it_is_not_ready(cluster):
    cluster.call(cluster.context_workers[0].refuse())
    with serve(cluster) as server:
        eventually(
            lambda: any(w.ready for w in server.service.registry.workers), what="the generation workers"
        )
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as http:
            assert http.get("/health").status_code == 503
            response = http.post("/v1/chat/completions", json=chat())
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "no_context_worker"


def test_the_generation_only_benchmark(cluster):
    """The workers' side of it is not simulated: the leg is looked at, not its answer."""
    with serve(cluster, benchmark_gen_only=True) as server:
        eventually(lambda: server.service.ready, what="readiness")
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as http:
            http.post("/v1/completions", json=completion())
    assert not [r for r in cluster.context_workers[0].requests if r.path == "/v1/completions"]
    legs = [r for w in cluster.generation_workers for r in w.requests if r.path == "/v1/completions"]
    sent = legs[0].json()
    assert sent["ignore_eos"] is True
    assert sent["disaggregated_params"] == {
        "request_type": "generation_only",
        "first_gen_tokens": [7],
        "ctx_request_id": 1,
    }


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("", False)])
def test_the_variable_of_upstream(value, on):
    settings = load_settings(None, overrides={}, environ={"TRTLLM_DISAGG_BENCHMARK_GEN_ONLY": value})
    assert settings.proxy.benchmark_gen_only is on


def test_the_canary_goes_through_both_workers(cluster):
    with serve(cluster, canary_interval=0.1):
        eventually(
            lambda: all(
                any(r.leg == leg for w in workers for r in w.requests)
                for leg, workers in (
                    ("context", cluster.context_workers),
                    ("generation", cluster.generation_workers),
                )
            ),
            what="a canary on both legs",
        )
        eventually(lambda: cluster.kv.leftover == 0, what="its hand-off being taken")
