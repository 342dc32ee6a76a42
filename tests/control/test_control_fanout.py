"""Calls to all workers at once."""

import hashlib
import hmac
import json

import pytest
from controlled_proxy import controlled
from running_proxy import chat

RL = {"context": 2, "generation": 2, "rl_control": True}
WEIGHTS = b'{"weights" : {"uuid-0": "handle"}}\n'


def url_of(worker):
    return f"http://{worker.address}"


async def test_all_workers_get_the_same_bytes():
    async with controlled(cluster=RL) as (proxy, admin):
        answer = await admin.post(
            "/update_weights?tag=a%20b&role=all&x",
            content=WEIGHTS,
            headers={
                "content-type": "application/json",
                "x-request-id": "step-7",
                "x-trtllm-runtime-control-auth": "sha256=00",
                "x-trtllm-runtime-control-nonce": "n1",
                "x-trtllm-disagg-auth": "sha256=11",
                "authorization": "Bearer admin",
                "cookie": "a=b",
            },
        )
        assert answer.status_code == 200
        success = {"status": 200, "body": {"status": "success"}}
        assert answer.json()["results"] == {url_of(worker): success for worker in proxy.cluster.workers}
        for worker in proxy.cluster.workers:
            (call,) = worker.control_calls
            assert (call.method, call.path, call.query) == ("POST", "/update_weights", "tag=a%20b&x")
            assert call.body == WEIGHTS
            assert call.header("x-trtllm-runtime-control-auth") == "sha256=00"
            assert call.header("x-trtllm-runtime-control-nonce") == "n1"
            assert call.header("x-request-id") == "step-7"
            for name in ("x-trtllm-disagg-auth", "authorization", "cookie"):
                assert call.header(name) is None
        metrics = (await proxy.client.get("/metrics")).text
        assert 'disagg_proxy_fanout_calls_total{outcome="ok",path="/update_weights"} 4.0' in metrics


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        (
            {"kind": "status", "status": 500, "body": '{"error": "oom"}'},
            {"status": 500, "body": {"error": "oom"}},
        ),
        (
            {"kind": "status", "status": 503, "body": "gone", "content_type": "text/plain"},
            {"status": 503, "body": "gone"},
        ),
        ({"kind": "disconnect"}, None),
        ({"kind": "reset"}, None),
        ({"kind": "hang"}, {"error": "no complete answer within 0.5 s"}),
    ],
)
async def test_a_worker_that_fails_is_told_and_never_asked_again(fault, result):
    async with controlled(cluster=RL, rl_fanout_timeout=0.5) as (proxy, admin):
        failing, *others = proxy.cluster.workers
        failing.board.add({**fault, "route": "rl_control"})
        answer = await admin.post("/admin/fanout/update_weights", content=WEIGHTS)
        assert answer.status_code == 207
        results = answer.json()["results"]
        if result is None:
            assert list(results[url_of(failing)]) == ["error"]
        else:
            assert results[url_of(failing)] == result
        assert all(results[url_of(worker)]["status"] == 200 for worker in others)
        # Exactly one call each, the failing one included.
        assert [len(worker.control_calls) for worker in proxy.cluster.workers] == [1] * 4


async def test_all_fail():
    async with controlled(cluster=RL) as (_, admin):
        answer = await admin.post("/update_weights", content=b"{}")
        assert answer.status_code == 502
        assert {each["status"] for each in answer.json()["results"].values()} == {400}


@pytest.mark.parametrize(
    ("role", "called"), [("context", (1, 0)), ("generation", (0, 1)), ("all", (1, 1)), ("", (1, 1))]
)
async def test_workers_of_a_role(role, called):
    async with controlled(cluster=RL) as (proxy, admin):
        answer = await admin.get("/memory_status", params={"role": role} if role else None)
        assert answer.status_code == 200
        for workers, count in zip(
            (proxy.cluster.context_workers, proxy.cluster.generation_workers), called, strict=True
        ):
            assert [len(worker.control_calls) for worker in workers] == [count] * 2


async def test_a_worker_in_both_roles_is_called_once():
    async with controlled(cluster=RL) as (proxy, admin):
        worker = proxy.cluster.context_workers[0]
        await admin.post("/workers", json={"url": worker.address, "role": "mixed"})
        assert len((await admin.get("/memory_status")).json()["results"]) == 4
        assert len(worker.control_calls) == 1


async def test_memory_under_sglangs_names():
    async with controlled(cluster=RL) as (proxy, admin):
        tags = {"tags": ["kv_cache"]}
        assert (await admin.post("/release_memory_occupation", json=tags)).status_code == 200
        assert {frozenset(worker.released_memory) for worker in proxy.cluster.workers} == {
            frozenset({"kv_cache"})
        }
        conflict = await admin.post("/release_memory", json=tags)
        assert {each["status"] for each in conflict.json()["results"].values()} == {409}
        assert (await admin.post("/resume_memory_occupation", json=tags)).status_code == 200


async def test_calls_are_signed_when_the_proxy_has_the_key():
    async with controlled(cluster={**RL, "auth_key": "secret"}, internal_request_auth_key="secret") as (
        proxy,
        admin,
    ):
        assert (await admin.post("/update_weights", content=WEIGHTS)).status_code == 200
        wanted = hmac.new(b"secret", WEIGHTS, hashlib.sha256).hexdigest()
        assert (
            proxy.cluster.workers[0].control_calls[0].header("x-trtllm-rl-control-auth") == f"sha256={wanted}"
        )
        # The caller's own signature is not replaced.
        own = {"x-trtllm-rl-control-auth": "sha256=bad"}
        refused = await admin.post("/update_weights", content=WEIGHTS, headers=own)
        assert {each["status"] for each in refused.json()["results"].values()} == {401}


async def test_large_bodies():
    async with controlled(cluster=RL, max_body_bytes=8 << 20) as (proxy, admin):
        body = json.dumps({"weights": "x" * (5 << 20)}).encode()
        assert (await admin.post("/update_weights", content=body)).status_code == 200
        assert {worker.control_calls[0].body for worker in proxy.cluster.workers} == {body}


async def test_what_is_not_listed():
    async with controlled(cluster=RL, rl_fanout_paths=["/memory_status"]) as (proxy, admin):
        for path in ("/update_weights", "/admin/fanout/update_weights", "/release_memory_occupation"):
            assert (await admin.post(path, content=WEIGHTS)).status_code == 404
        assert (await admin.get("/memory_status?role=nobody")).json()["error"]["param"] == "role"
        assert (await admin.get("/admin/fanout/memory_status")).status_code == 200
        assert (await admin.put("/memory_status")).status_code == 405
        assert not any(
            call.path == "/update_weights" for w in proxy.cluster.workers for call in w.control_calls
        )


async def test_without_workers():
    async with controlled(cluster=RL) as (proxy, admin):
        for worker in proxy.cluster.context_workers:
            await admin.delete(f"/workers/{worker.address}")
        answer = await admin.get("/memory_status?role=context")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")


@pytest.mark.parametrize("path", ["/flush_cache", "/reset_prefix_cache"])
async def test_flush(path):
    async with controlled(cluster=RL) as (_, admin):
        for method in ("GET", "POST"):
            answer = await admin.request(method, path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (501, "unsupported")
    async with controlled(cluster=RL, rl_flush_path="/release_memory") as (proxy, admin):
        assert (await admin.get(path)).status_code == 200
        assert {worker.control_calls[0].method for worker in proxy.cluster.workers} == {"POST"}


async def test_an_update_between_pause_and_resume():
    async with controlled(cluster=RL) as (proxy, admin):
        assert (await admin.post("/pause?mode=wait")).status_code == 200
        waiting = proxy.send(chat())
        assert (await admin.post("/update_weights", content=WEIGHTS)).status_code == 200
        assert not waiting.done()
        assert (await admin.post("/resume")).status_code == 200
        assert (await waiting).status_code == 200
