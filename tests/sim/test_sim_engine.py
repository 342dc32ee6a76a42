"""Speed, the batch, and aborts."""

import asyncio
import time

import httpx
import pytest
from sim_client import (
    Client,
    chat,
    completion,
    context_body,
    eventually,
    generation_body,
    raw_connection,
    raw_request,
)

from proxy.sim import SimCluster, Speed, ThreadedSimCluster

SLOW = Speed(decode_ms=20)


async def test_prefill_rate_is_shared(client: Client) -> None:
    async with SimCluster(1, 0, speed=Speed(prefill_tokens_per_second=1000)) as cluster:
        worker = cluster.context_workers[0]
        bodies = [context_body(completion(prompt=[1] * 50)) for _ in range(3)]
        started = time.monotonic()
        await asyncio.gather(*(client.post(worker, body) for body in bodies))
        assert 0.15 <= time.monotonic() - started < 0.6


async def test_decode_steps(client: Client) -> None:
    async with SimCluster(0, 1, speed=Speed(decode_ms=8, decode_ms_per_request=2)) as cluster:
        worker = cluster.generation_workers[0]
        for stream in (True, False):
            started = time.monotonic()
            await client.post(worker, completion(max_tokens=11, ignore_eos=True, stream=stream))
            assert 0.085 <= time.monotonic() - started < 0.5


async def test_full_batch_waits(client: Client) -> None:
    async with SimCluster(0, 1, speed=Speed(decode_ms=5, max_batch=1)) as cluster:
        worker = cluster.generation_workers[0]
        started = time.monotonic()
        body = completion(max_tokens=5, ignore_eos=True, stream=True)
        running = [asyncio.create_task(client.post(worker, body)) for _ in range(3)]
        await eventually(lambda: worker.engine.waiting == 2)
        assert worker.stats()["running"] == 1
        await asyncio.gather(*running)
        assert time.monotonic() - started >= 0.05
        assert worker.stats()["max_running"] == 1
        assert worker.engine.running == worker.engine.waiting == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_disconnect_aborts(stream: bool) -> None:
    async with SimCluster(0, 1, speed=SLOW) as cluster:
        worker = cluster.generation_workers[0]
        async with raw_connection(worker) as (_, writer):
            writer.write(raw_request(chat(max_tokens=1000, ignore_eos=True, stream=stream)))
            await eventually(lambda: worker.engine.running == 1)
        await eventually(lambda: worker.engine.running == 0)
        assert worker.stats()["aborts"] == 1


async def test_disconnect_of_a_waiting_request() -> None:
    async with SimCluster(0, 1, speed=Speed(decode_ms=20, max_batch=1)) as cluster:
        worker = cluster.generation_workers[0]
        body = completion(max_tokens=1000, ignore_eos=True)
        async with raw_connection(worker) as (_, first):
            first.write(raw_request(body))
            await eventually(lambda: worker.engine.running == 1)
            async with raw_connection(worker) as (_, second):
                second.write(raw_request(body))
                await eventually(lambda: worker.engine.waiting == 1)
            await eventually(lambda: worker.engine.waiting == 0)
            assert worker.engine.running == 1
        await eventually(lambda: worker.engine.running == 0)
        assert worker.engine.aborts == 2


async def test_disconnect_during_prefill_holds_no_kv() -> None:
    async with SimCluster(1, 0, speed=Speed(prefill_tokens_per_second=1)) as cluster:
        worker = cluster.context_workers[0]
        async with raw_connection(worker) as (_, writer):
            writer.write(raw_request(context_body(completion())))
            await eventually(lambda: worker.engine.running == 1)
        await eventually(lambda: worker.engine.running == 0)
        assert cluster.kv.counts().stored == 0
        assert worker.engine.aborts == 1


async def test_aborts_can_come_as_late_as_a_poll() -> None:
    async with SimCluster(0, 1, speed=SLOW, disconnect_seconds=0.15) as cluster:
        worker = cluster.generation_workers[0]
        async with raw_connection(worker) as (_, writer):
            writer.write(raw_request(completion(max_tokens=1000, ignore_eos=True, stream=True)))
            await eventually(lambda: worker.engine.running == 1)
        left = time.monotonic()
        await eventually(lambda: worker.engine.running == 0)
        assert 0.1 <= time.monotonic() - left < 0.6
        assert worker.engine.aborts == 1


async def test_instant_streams_notice_the_disconnect() -> None:
    async with SimCluster(0, 1) as cluster:
        worker = cluster.generation_workers[0]
        async with raw_connection(worker) as (reader, writer):
            writer.write(raw_request(completion(max_tokens=60_000, ignore_eos=True, stream=True)))
            await reader.read(1000)
        await eventually(lambda: worker.engine.running == 0, seconds=5)
        assert worker.engine.aborts == 1


async def test_kv_expires_and_is_counted(client: Client) -> None:
    async with SimCluster(1, 1, kv_seconds=0.05) as cluster:
        answer = await client.context(cluster.context_workers[0], completion())
        assert cluster.context_workers[0].stats()["kv"]["held"] == 1
        await asyncio.sleep(0.06)
        response = await client.post(cluster.generation_workers[0], generation_body(completion(), answer))
        assert response.status_code == 400
        kv = cluster.context_workers[0].stats()["kv"]
        assert (kv["held"], kv["expired"], kv["taken"], kv["refused"]) == (0, 1, 0, 1)
        assert cluster.kv.leftover == 1


def test_generation_first_legs_meet() -> None:
    with ThreadedSimCluster(1, 1) as cluster, httpx.Client(trust_env=False) as http:
        info = http.get(f"http://{cluster.context_urls[0]}/server_info").json()["disaggregated_params"]
        shared = {"disagg_request_id": 77, "schedule_style": 1}
        context = completion(disaggregated_params={"request_type": "context_only", **shared})
        generation = completion(
            disaggregated_params={
                "request_type": "generation_only",
                "ctx_request_id": 77,
                **shared,
                "ctx_dp_rank": info["ctx_dp_rank"],
                "ctx_info_endpoint": info["ctx_info_endpoint"][0],
            }
        )

        async def both() -> tuple[httpx.Response, httpx.Response]:
            async with httpx.AsyncClient(trust_env=False) as client:
                first = asyncio.create_task(
                    client.post(f"http://{cluster.generation_urls[0]}/v1/completions", json=generation)
                )
                await eventually(lambda: cluster.generation_workers[0].engine.running == 1)
                answer = await client.post(f"http://{cluster.context_urls[0]}/v1/completions", json=context)
                return answer, await first

        answer, result = asyncio.run(both())
        assert answer.json()["choices"][0]["finish_reason"] == "not_finished"
        assert result.status_code == 200
        assert cluster.kv.counts().as_dict() == {
            "held": 0,
            "stored": 1,
            "taken": 1,
            "expired": 0,
            "refused": 0,
        }


async def test_generation_first_context_waits_for_its_peer(client: Client) -> None:
    async with SimCluster(1, 1, kv_seconds=0.1) as cluster:
        body = context_body(completion(), schedule_style=1)
        response = await client.post(cluster.context_workers[0], body)
        assert response.status_code == 400
        assert "no generation worker took" in response.json()["message"]
        assert cluster.kv.counts().expired == 1


async def test_generation_first_can_be_refused(client: Client) -> None:
    async with SimCluster(1, 1, generation_first=False) as cluster:
        params = {"request_type": "generation_only", "disagg_request_id": 5, "schedule_style": 1}
        response = await client.post(cluster.generation_workers[0], completion(disaggregated_params=params))
        assert response.status_code == 400
        assert "generation_first" in response.json()["message"]
