"""The workers' metrics of one request, of both legs, where a client of one worker would find them."""

import json
import re

import pytest
from e2e_bodies import chat, completion, dialect, streamed_text

from proxy.sim import expected_text
from proxy.sim.profiles import PROFILES

ASK = {"x-trtllm-return-metrics": "1"}
NAMES = {"server-timing", "x-trtllm-start-end-time", "x-trtllm-step-metrics", "x-trtllm-ctx-chunk-metrics"}
EVENT = "event: trtllm.perf_metrics\n"


@pytest.fixture(params=PROFILES)
def profile(request):
    return request.param


@pytest.fixture
def stack(make_stack, profile):
    return make_stack({"profile": profile}, timing_headers=False, worker_dialect=dialect(profile))


def metrics_of(response, stream):
    """The metrics by their header's name in lower case, and what is left of the body."""
    if not stream:
        return {name: response.headers[name] for name in NAMES & response.headers.keys()}, response.text
    assert not NAMES & response.headers.keys()
    text, _, rest = response.text.partition(EVENT)
    assert rest.endswith("\n\n")
    found = json.loads(rest.removeprefix("data: "))
    return {name.lower(): value for name, value in found.items()}, text


def phases(metrics):
    return {
        name: float(value) for name, value in re.findall(r"(\w+);dur=([0-9.]+)", metrics["server-timing"])
    }


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("body", [chat(), completion()], ids=["chat", "completions"])
def test_both_legs(stack, profile, stream, body):
    response = stack.post({**body, "stream": stream}, headers=ASK)
    metrics, text = metrics_of(response, stream)
    if stream:
        assert streamed_text(text) == expected_text(body)
    shown = phases(metrics)
    assert 0 < shown["disagg_queue"] < shown["disagg_ttft"]
    if not PROFILES[profile].perf_metrics:
        assert shown.keys() == {"disagg_queue", "disagg_ttft"}
        return
    assert shown.keys() >= {f"{leg}_{name}" for leg in ("ctx", "gen") for name in ("queue", "ttft", "e2e")}
    # The context leg lies between the first two of our own times.
    assert shown["ctx_e2e"] <= shown["disagg_ttft"] - shown["disagg_queue"]
    marks = re.findall(r"([\w-]+);ts=", metrics["x-trtllm-start-end-time"])
    assert marks == ["ctx-start", "ctx-end", "gen-start", "gen-end"]
    steps = re.findall(r"([\w-]+);dur=", metrics["x-trtllm-step-metrics"])
    assert steps == ["ctx-step-0-forward", "gen-step-0-forward"]
    assert metrics["x-trtllm-ctx-chunk-metrics"].startswith("ctx-ctx-chunk-0-forward;dur=")
    assert "server" not in "".join(metrics.values())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_finished_by_the_context_worker(stack, profile, stream):
    body = chat(stream=stream)
    stack.cluster.context_workers[0].add_fault(kind="finish", count=1)
    metrics, _ = metrics_of(stack.post(body, headers=ASK), stream)
    shown = phases(metrics)
    assert ("ctx_e2e" in shown) is PROFILES[profile].perf_metrics
    assert "gen_e2e" not in shown


def test_with_usage(stack):
    """Two rewriters, if the worker does not know `ctx_usage`."""
    body = chat(stream=True, stream_options={"include_usage": True})
    _, text = metrics_of(stack.post(body, headers=ASK), stream=True)
    *_, usage, done, end = text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    assert json.loads(usage.removeprefix("data: "))["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_nobody_else_gets_them(stack):
    response = stack.post(chat(stream=True))
    assert response.text.endswith("data: [DONE]\n\n")
    assert not NAMES & response.headers.keys()
    assert not NAMES & stack.post(chat()).headers.keys()


def test_a_stream_in_one_piece(stack, profile):
    """A worker that answers a request for a stream with JSON puts them into its headers."""
    stack.cluster.generation_workers[0].add_fault(kind="not_sse", count=1)
    metrics, _ = metrics_of(stack.post(chat(stream=True), headers=ASK), stream=False)
    assert ("gen_e2e" in phases(metrics)) is PROFILES[profile].perf_metrics
