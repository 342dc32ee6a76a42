"""Placement and health as configured: conversations, domains, models, ejection from real traffic."""

from collections import Counter

import httpx
import pytest
from e2e_bodies import chat, completion
from e2e_server import ServerThread
from program import eventually

from proxy.config.load import load_settings
from proxy.sim import ThreadedSimCluster


@pytest.fixture
def serve():
    """Starts a cluster and a proxy in front of it; `workers` makes `proxy.workers` of the urls."""
    running = []

    def start(context=3, generation=2, workers=None, router="conversation", **overrides):
        cluster = ThreadedSimCluster(context=context, generation=generation).start()
        running.append(cluster.stop)
        given = {
            "hostname": "127.0.0.1",
            "port": 0,
            "drain_grace": 0,
            "context_servers": {"router": {"type": router}},
            "generation_servers": {"router": {"type": "load_balancing"}},
            "workers": (workers or plain)(cluster.context_urls, cluster.generation_urls),
            "worker_version": cluster.cluster.settings.profile,
            **overrides,
        }
        server = ServerThread(load_settings(None, overrides=given, environ={}), "own").start()
        running.append(server.stop)
        eventually(lambda: all(worker.ready for worker in server.service.registry.workers), what="all ready")
        return cluster, server

    yield start
    for stop in reversed(running):
        stop()


def plain(context, generation):
    return [{"url": url, "role": "context"} for url in context] + [
        {"url": url, "role": "generation"} for url in generation
    ]


def post(server, body, path="/v1/chat/completions", **options):
    return httpx.post(f"http://127.0.0.1:{server.port}{path}", json=body, trust_env=False, **options)


def used(workers, leg):
    return Counter(worker.address for worker in workers for request in worker.requests if request.leg == leg)


def ids_of(worker, leg):
    return {
        request.json()["disaggregated_params"]["disagg_request_id"]
        for request in worker.requests
        if request.leg == leg
    }


def turns(number, topic):
    """The body of each turn of a conversation."""
    messages = [{"role": "system", "content": "be terse"}, {"role": "user", "content": f"about {topic}"}]
    for turn in range(number):
        yield chat(messages=list(messages))
        messages += [
            {"role": "assistant", "content": f"answer {turn}"},
            {"role": "user", "content": f"question {turn}"},
        ]


@pytest.mark.parametrize("router", ["conversation", "prefix"])
def test_a_conversation_stays_on_its_context_worker(serve, router):
    cluster, server = serve(router=router)
    seen = set()
    for topic in range(16):  # all on one of three workers by chance: never
        for worker in cluster.workers:
            worker.clear_records()
        for body in turns(4, topic):
            assert post(server, body).status_code == 200
        found = used(cluster.context_workers, "context")
        assert list(found.values()) == [4]
        seen |= set(found)
    assert len(seen) > 1


@pytest.mark.parametrize(
    "named",
    [
        {"json": {"prompt_cache_key": "chat-1"}},
        {"json": {"session_id": "chat-1"}},
        {"headers": {"x-session-id": "chat-1"}},
        {"headers": {"X-OpenWebUI-Chat-Id": "chat-1"}},
    ],
)
def test_a_named_conversation_stays_whatever_it_says(serve, named):
    cluster, server = serve()
    for topic in range(6):
        body = {**completion(prompt=f"topic {topic} {topic}"), **named.get("json", {})}
        headers = named.get("headers", {})
        assert post(server, body, "/v1/completions", headers=headers).status_code == 200
    assert list(used(cluster.context_workers, "context").values()) == [6]


def test_the_generation_worker_comes_from_the_same_domain(serve):
    def workers(context, generation):
        return [
            {"url": url, "role": role, "labels": {"domain": f"rack{index}"}}
            for role, urls in (("context", context), ("generation", generation))
            for index, url in enumerate(urls)
        ]

    cluster, server = serve(
        context=2, generation=2, workers=workers, router="round_robin", topology_strict=True
    )
    for _ in range(6):
        assert post(server, chat()).status_code == 200
    assert sorted(used(cluster.context_workers, "context").values()) == [3, 3]
    for context, generation in zip(cluster.context_workers, cluster.generation_workers, strict=True):
        assert ids_of(context, "context") == ids_of(generation, "generation")


def test_each_model_has_its_workers(serve):
    def workers(context, generation):
        names = ("one", "two")
        return [
            {"url": url, "role": role, "model": name}
            for role, urls in (("context", context), ("generation", generation))
            for name, url in zip(names, urls, strict=True)
        ]

    cluster, server = serve(context=2, generation=2, workers=workers)
    for _ in range(3):
        assert post(server, chat(model="two")).status_code == 200
    first, second = cluster.context_workers
    assert (len(first.requests), len(second.requests)) == (0, 3)
    refused = post(server, chat(model="three"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")


def test_the_canary_finds_a_worker_that_lies(serve):
    """Its `/health` says 200 while every request fails; there is no other traffic."""
    cluster, server = serve(context=2, generation=2, canary_interval=0.05)
    sick = cluster.generation_workers[0]
    sick.add_fault(kind="status", status=500, route="inference")
    registry = server.service.registry
    eventually(lambda: sum(not worker.ready for worker in registry.workers) == 1, what="one worker out")
    (out,) = [worker for worker in registry.workers if not worker.ready]
    assert out.address.text == sick.address
    assert out.health.ejections["canary"] == 1
    assert all(post(server, chat()).status_code == 200 for _ in range(3))


def test_a_worker_whose_connections_break_is_ejected(serve):
    cluster, server = serve(context=3, router="round_robin")
    sick = cluster.context_workers[0]
    sick.add_fault(kind="reset", route="inference")
    for _ in range(12):
        assert post(server, chat()).status_code == 200
    broken = next(w for w in server.service.registry.workers if w.address.text == sick.address)
    assert not broken.ready
    assert broken.health.ejections["reset"] >= 1
    sick.clear_faults()
    eventually(lambda: post(server, chat()).status_code == 200 and broken.ready, what="the worker back")
