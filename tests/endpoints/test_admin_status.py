"""What `/admin/status` tells."""

from typing import Any

import httpx
from running_proxy import CHAT, chat, eventually, running_proxy

ADMIN = {"admin_listen": "127.0.0.1:0"}


async def status(proxy: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=proxy.admin_url, timeout=10, trust_env=False) as admin:
        answer = await admin.get("/admin/status")
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found


async def test_workers_requests_and_processes() -> None:
    async with running_proxy(cluster={"context": 1, "generation": 1}, **ADMIN) as proxy:
        for stream in (True, False):
            assert (await proxy.client.post(CHAT, json=chat(stream=stream))).status_code == 200
        # What the gauges tell is up to a second old.
        seen = await status(proxy)
        while seen["workers"][0]["placed"] < 2:
            seen = await status(proxy)
    context, generation = seen["workers"]
    assert (context["role"], context["worker"]) == ("context", proxy.cluster.context_urls[0])
    assert (generation["role"], generation["worker"]) == ("generation", proxy.cluster.generation_urls[0])
    for worker, times in ((context, 2), (generation, 1)):
        assert worker["states"] == {"ready": 1}
        assert worker["breakers"] == {"closed": 1}
        assert (worker["placed"], worker["ended"]["ok"], worker["in_flight"]) == (2, 2, 0)
        assert worker["held"] is False
        assert worker["latency"]["count"] == times
        assert 0 < worker["latency"]["sum"] < 10
        assert worker["probe_seconds"] > 0
    assert seen["requests"] == {"ok": 2}
    assert seen["overhead"]["count"] == 2
    assert seen["first_byte"]["counts"][-1] == 1
    assert len(seen["first_byte"]["counts"]) == len(seen["first_byte"]["bounds"]) + 1
    (process,) = seen["processes"]
    assert process["restarts"] == 0
    assert process["rss_bytes"] > 10_000_000
    assert process["loop_lag_seconds"] >= 0
    assert seen["recent_errors"] == []


async def test_recent_errors_and_a_drained_worker() -> None:
    async with running_proxy(cluster={"context": 2, "generation": 1}, max_retries=0, **ADMIN) as proxy:
        await eventually(lambda: all(worker.ready for worker in proxy.service.registry.workers))
        async with httpx.AsyncClient(base_url=proxy.admin_url, timeout=10, trust_env=False) as admin:
            named = {"workers": [proxy.cluster.context_urls[1]]}
            assert (await admin.post("/admin/workers/drain", json=named)).status_code == 200
        proxy.cluster.context_workers[0].board.add({"kind": "null_body", "count": 1})
        proxy.cluster.generation_workers[0].board.add({"kind": "status", "status": 422, "count": 1})
        for number in range(3):
            await proxy.client.post(CHAT, json=chat("secret"), headers={"x-request-id": f"r-{number}"})
        await proxy.client.post(CHAT, json=chat("secret", stream="x"), headers={"x-request-id": "r-3"})
        seen = await status(proxy)
        while {"draining": 1} not in [worker["states"] for worker in seen["workers"]]:
            seen = await status(proxy)
    assert {worker["worker"]: worker["held"] for worker in seen["workers"]} == {
        proxy.cluster.context_urls[0]: False,
        proxy.cluster.context_urls[1]: True,
        proxy.cluster.generation_urls[0]: False,
    }
    told = [
        (each["request_id"], each["status"], each["error"], each["worker"]) for each in seen["recent_errors"]
    ]
    assert told == [
        ("r-3", 400, "client;invalid_type", ""),
        ("r-1", 422, "gen", proxy.cluster.generation_urls[0]),
        ("r-0", 502, "ctx;bad_worker_response", proxy.cluster.context_urls[0]),
    ]
    assert {each["route"] for each in seen["recent_errors"]} == {CHAT}
    assert "secret" not in str(seen)
