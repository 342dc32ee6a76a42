"""The metrics of requests on real sockets."""

import asyncio
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families
from running_proxy import RunningProxy, chat, running_proxy

from proxy.sim import Speed


async def samples(proxy: RunningProxy) -> dict[str, float]:
    """Name and sorted label values, joined by blanks -> value; bucket samples are left out."""
    text = (await proxy.client.get("/metrics")).text
    return {
        " ".join([sample.name, *(value for _, value in sorted(sample.labels.items()))]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }


async def test_one_request_of_each_kind() -> None:
    async with running_proxy() as proxy:
        for stream in (False, True):
            assert (
                await proxy.client.post("/v1/chat/completions", json=chat(stream=stream))
            ).status_code == 200
        assert (await proxy.client.post("/v1/chat/completions", json=chat(stream="x"))).status_code == 400
        seen = await samples(proxy)
    expected = {
        "disagg_proxy_requests_total sim ok /v1/chat/completions false": 1,
        "disagg_proxy_requests_total sim ok /v1/chat/completions true": 1,
        "disagg_proxy_requests_total  rejected /v1/chat/completions false": 1,
        "disagg_proxy_request_seconds_count sim false": 1,
        "disagg_proxy_request_seconds_count sim true": 1,
        "disagg_proxy_overhead_seconds_count false": 1,
        "disagg_proxy_leg_seconds_count context": 2,
        "disagg_proxy_leg_seconds_count generation": 2,
        "disagg_proxy_hand_off_seconds_count": 2,
        "disagg_proxy_first_byte_seconds_count sim": 1,
        "disagg_proxy_generation_first_byte_seconds_count": 1,
        "disagg_proxy_queue_seconds_count ok": 2,
        "total_requests_total": 2,
        "validation_exceptions_total": 1,
        "ctx_total_requests_total": 2,
        "gen_completed_requests_total": 2,
        "gen_first_token_latency_seconds_count": 1,
        "gen_complete_latency_seconds_count": 2,
    }
    assert {name: seen.get(name) for name in expected} == expected
    legs = {name: value for name, value in seen.items() if name.startswith("disagg_proxy_worker_legs_total")}
    assert sorted((name.split()[1:3], value) for name, value in legs.items() if "other" not in name) == [
        (["ok", "context"], 2),
        (["ok", "generation"], 2),
    ]


async def test_gaps_are_sampled() -> None:
    async with running_proxy(cluster={"speed": Speed(decode_ms=2.0)}) as proxy:
        for _ in range(32):
            answer = await proxy.client.post("/v1/chat/completions", json=chat(stream=True, max_tokens=9))
            assert answer.status_code == 200
        seen = await samples(proxy)
    count = seen["disagg_proxy_piece_gap_seconds_count"]
    # Two streams; pieces that arrive together are one.
    assert 2 <= count <= 2 * 12
    assert seen["gen_per_token_latency_seconds_count"] == count
    assert 0.0005 < seen["disagg_proxy_piece_gap_seconds_sum"] / count < 0.1


async def test_sums_are_those_of_the_client() -> None:
    async with running_proxy(cluster={"context": 2, "generation": 2}) as proxy:
        statuses: Counter[int] = Counter()

        async def ask(number: int) -> None:
            body = chat(stream=number % 3 == 0) if number % 5 else chat(stream="x")
            answer = await proxy.client.post("/v1/chat/completions", json=body)
            statuses[answer.status_code] += 1

        await asyncio.gather(*(ask(number) for number in range(60)))
        seen = await samples(proxy)
    assert statuses == {200: 48, 400: 12}
    total = sum(
        value for name, value in seen.items() if name.startswith("disagg_proxy_requests_total sim ok")
    )
    assert total == 48
    assert seen["disagg_proxy_errors_total invalid_type client"] == 12
