"""Where the time of a request went, told to its client."""

import re

import httpx
import pytest
from running_proxy import chat, running_proxy

from proxy.sim import Speed

ROUTE = "/v1/chat/completions"


def phases(answer: httpx.Response) -> dict[str, float]:
    found = re.findall(r"(\w+);dur=([0-9.]+)", answer.headers["server-timing"])
    assert len(dict(found)) == len(found)
    return {name: float(value) for name, value in found}


@pytest.mark.parametrize("kind", ["own", "uvicorn"])
@pytest.mark.parametrize("stream", [False, True])
async def test_phases_add_up(kind, stream) -> None:
    async with running_proxy(kind=kind, cluster={"speed": Speed(decode_ms=10.0)}) as proxy:
        answer = await proxy.client.post(ROUTE, json=chat(stream=stream))
        assert answer.status_code == 200
        seen = phases(answer)
        last = "gen_first" if stream else "gen"
        assert list(seen) == ["queue", "ctx", "handoff", last, "total"]
        overhead = int(answer.headers["x-disagg-proxy-overhead-us"]) / 1000
        assert 0 < overhead < seen["total"]
        assert seen["ctx"] + seen["handoff"] + seen[last] <= seen["total"]
        assert seen["total"] <= answer.elapsed.total_seconds() * 1000
        if not stream:
            assert seen["gen"] > 10


async def test_errors_tell_it_too() -> None:
    async with running_proxy(max_retries=0) as proxy:
        proxy.cluster.context_workers[0].board.add({"kind": "null_body", "count": 1})
        answer = await proxy.client.post(ROUTE, json=chat())
        assert answer.status_code == 502
        assert set(phases(answer)) == {"queue", "ctx", "total"}
        assert "x-disagg-proxy-overhead-us" in answer.headers
        refused = await proxy.client.post(ROUTE, json=chat(stream="x"))
        assert refused.status_code == 400
        assert "server-timing" not in refused.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_it_can_be_switched_off(stream) -> None:
    async with running_proxy(timing_headers=False) as proxy:
        answer = await proxy.client.post(ROUTE, json=chat(stream=stream))
        assert answer.status_code == 200
        assert not answer.headers.keys() & {"server-timing", "x-disagg-proxy-overhead-us"}
        assert answer.headers["x-request-id"]


async def test_the_workers_metrics_when_asked_for() -> None:
    async with running_proxy() as proxy:
        headers = {"x-trtllm-return-metrics": "1"}
        answer = await proxy.client.post(ROUTE, json=chat(), headers=headers)
        assert answer.status_code == 200
        names = set(phases(answer))
        assert {
            "disagg_queue",
            "disagg_ttft",
            "ctx_queue",
            "ctx_e2e",
            "gen_queue",
            "gen_e2e",
            "total",
        } <= names
        assert not [name for name in names if name.startswith("server")]
        marks = re.findall(r"([\w-]+);ts=", answer.headers["x-trtllm-start-end-time"])
        assert marks == ["ctx-start", "ctx-end", "gen-start", "gen-end"]
        # Finished by the context worker.
        proxy.cluster.context_workers[0].board.add({"kind": "finish", "count": 1})
        answer = await proxy.client.post(ROUTE, json=chat(), headers=headers)
        assert answer.status_code == 200
        names = set(phases(answer))
        assert "ctx_e2e" in names
        assert "gen_e2e" not in names
        plain = await proxy.client.post(ROUTE, json=chat())
        assert not [name for name in phases(plain) if "_" in name]
