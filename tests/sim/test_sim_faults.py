"""Each fault switch, seen from the other end of a real socket."""

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from sim_client import Client, chat, completion, context_body, events, eventually, raw_connection, raw_request

from proxy.sim import SimCluster, SimWorker

STREAM = completion(stream=True, max_tokens=6)


async def read_all(worker: SimWorker, body: dict[str, Any]) -> bytes:
    """Everything a worker sends for one request on a connection that is not kept."""
    async with raw_connection(worker) as (reader, writer):
        writer.write(raw_request(body, headers="connection: close\r\n"))
        return await asyncio.wait_for(reader.read(), 3)


async def read_until_silence(reader: asyncio.StreamReader) -> bytes:
    """What arrives until nothing came for a while."""
    received = b""
    while True:
        try:
            part = await asyncio.wait_for(reader.read(10_000), 0.05)
        except TimeoutError:
            return received
        assert part, "the connection was closed"
        received += part


async def test_status(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="status", status=429, retry_after=7, headers={"x-a": "b"}, leg="context", count=1)
    assert (await client.post(worker, completion())).status_code == 200
    response = await client.post(worker, context_body(completion()))
    assert (response.status_code, response.headers["retry-after"], response.headers["x-a"]) == (429, "7", "b")
    assert response.json()["code"] == 429
    assert (await client.post(worker, context_body(completion()))).status_code == 200
    worker.add_fault(kind="status", status=500, body="broken", content_type="text/plain", count=1)
    assert (await client.post(worker, completion())).text == "broken"


async def test_hang(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="hang", count=1)
    with pytest.raises(httpx.ReadTimeout):
        await client.post(worker, completion(), timeout=0.05)
    await eventually(lambda: worker.stats()["aborts"] == 1)
    worker.add_fault(kind="hang", seconds=0.02, count=1)
    assert (await client.post(worker, completion())).status_code == 200


async def test_accept_and_hang(cluster: SimCluster) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="accept_hang", count=1)
    async with raw_connection(worker) as (reader, writer):
        writer.write(raw_request(completion()))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
    assert worker.stats()["requests"]["total"] == 0
    await eventually(lambda: worker.connections.open == 0)


@pytest.mark.parametrize("kind", ["accept_reset", "reset"])
async def test_resets(cluster: SimCluster, kind: str) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind=kind, count=1)
    with pytest.raises(ConnectionResetError):
        await read_all(worker, completion())
    assert (await read_all(worker, completion())).startswith(b"HTTP/1.1 200")


async def test_reset_of_a_reused_connection(cluster: SimCluster) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="reset_reused", count=1)
    async with raw_connection(worker) as (reader, writer):
        writer.write(raw_request(completion()))
        assert b"200" in await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.01)
        while len(await reader.read(100_000)) == 100_000:
            pass
        writer.write(raw_request(completion()))
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
    assert worker.stats()["requests"]["total"] == 1


async def test_disconnect_and_garbage(cluster: SimCluster) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="disconnect", count=1)
    assert await read_all(worker, completion()) == b""
    worker.add_fault(kind="garbage", count=1)
    garbage = await read_all(worker, completion())
    assert garbage
    assert not garbage.startswith(b"HTTP/")


async def test_null_body(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="null_body", count=1)
    response = await client.post(worker, context_body(completion()))
    assert (response.status_code, response.text) == (200, "null")


async def test_slow_first_byte(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="slow_first_byte", seconds=0.05, count=1)
    started = time.monotonic()
    assert (await client.post(worker, completion())).status_code == 200
    assert time.monotonic() - started >= 0.05


@pytest.mark.parametrize("status", [100, 103])
async def test_informational_answers(cluster: SimCluster, client: Client, status: int) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="informational", status=status)
    first, _, rest = (await read_all(worker, completion())).partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 %d " % status)
    assert rest.startswith(b"HTTP/1.1 200 ")
    assert (await client.post(worker, completion())).status_code == 200


async def test_oversized_headers(cluster: SimCluster) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="oversized_headers", size=200_000)
    head, _, _ = (await read_all(worker, completion())).partition(b"\r\n\r\n")
    assert len(head) > 200_000


async def test_truncated_json(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="truncated_json")
    response = await client.post(worker, completion())
    assert response.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        response.json()


async def test_cut_json(cluster: SimCluster) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="cut", count=1)
    head, _, body = (await read_all(worker, completion())).partition(b"\r\n\r\n")
    announced = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    assert 0 < len(body) < announced


@pytest.mark.parametrize("inside", [False, True])
async def test_cut_streams(cluster: SimCluster, inside: bool) -> None:
    worker = cluster.generation_workers[0]
    worker.add_fault(kind="cut", after_events=3, inside=inside, count=1)
    raw = await read_all(worker, STREAM)
    assert raw.count(b"data: ") == (4 if inside else 3)
    assert not raw.endswith(b"0\r\n\r\n")
    assert raw.endswith(b"}\n\n\r\n") == (not inside)


async def test_cut_with_reset(cluster: SimCluster) -> None:
    worker = cluster.generation_workers[0]
    worker.add_fault(kind="cut", after_events=2, with_reset=True, count=1)
    with pytest.raises(ConnectionResetError):
        await read_all(worker, STREAM)


async def test_sse_error(cluster: SimCluster, client: Client) -> None:
    worker = cluster.generation_workers[0]
    worker.add_fault(kind="sse_error", after_events=2, count=1)
    response = await client.post(worker, STREAM)
    parsed = events(response.text)
    assert response.status_code == 200
    assert parsed[2]["error"] == {
        "message": "Generation failed: simulated",
        "type": "server_error",
        "code": None,
        "param": None,
    }
    assert parsed[3:] == ["[DONE]", "[DONE]"]


@pytest.mark.parametrize("body", [STREAM, completion()])
async def test_stall(cluster: SimCluster, client: Client, body: dict[str, Any]) -> None:
    worker = cluster.generation_workers[0]
    worker.add_fault(kind="stall", after_events=2, count=1)
    async with raw_connection(worker) as (reader, writer):
        writer.write(raw_request(body))
        received = await read_until_silence(reader)
    assert received.startswith(b"HTTP/1.1 200")
    assert b"[DONE]" not in received
    await eventually(lambda: worker.engine.running == 0)
    worker.add_fault(kind="stall", seconds=0.02, count=1)
    assert (await client.post(worker, body)).status_code == 200


async def test_json_answer_to_a_stream_request(cluster: SimCluster, client: Client) -> None:
    worker = cluster.generation_workers[0]
    worker.add_fault(kind="not_sse")
    response = await client.post(worker, STREAM)
    assert response.headers["content-type"] == "application/json"
    assert response.json()["choices"][0]["text"]


async def test_chunk_extensions_and_trailers(cluster: SimCluster, client: Client) -> None:
    worker = cluster.generation_workers[0]
    plain = await client.post(worker, STREAM)
    worker.add_fault(kind="chunk_extensions")
    worker.add_fault(kind="trailers")
    raw = await read_all(worker, STREAM)
    assert raw.endswith(b"0;sim=1\r\nx-sim-trailer: yes\r\nx-sim-count: 2\r\n\r\n")
    assert raw.count(b";sim=1\r\ndata: ") == plain.text.count("data: ")
    response = await client.post(worker, STREAM)
    assert [e["choices"] for e in events(response.text)[:-1]] == [
        e["choices"] for e in events(plain.text)[:-1]
    ]
    assert (await client.post(worker, completion())).json()["choices"]


@pytest.mark.parametrize("kind", ["close", "close_silently"])
@pytest.mark.parametrize("body", [STREAM, completion()])
async def test_closing_after_the_answer(cluster: SimCluster, kind: str, body: dict[str, Any]) -> None:
    worker = cluster.generation_workers[0]
    worker.add_fault(kind=kind, count=1)
    async with raw_connection(worker) as (reader, writer):
        writer.write(raw_request(body))
        raw = await asyncio.wait_for(reader.read(), 3)
    assert (b"connection: close\r\n" in raw) == (kind == "close")
    assert raw.endswith(b"0\r\n\r\n") or raw.endswith(b"}")


async def test_unsolicited_answer(cluster: SimCluster) -> None:
    worker = cluster.generation_workers[0]
    worker.add_fault(kind="unsolicited", count=1)
    async with raw_connection(worker) as (reader, writer):
        writer.write(raw_request(completion()))
        raw = await asyncio.wait_for(reader.readuntil(b"null"), 3)
        while raw.count(b"HTTP/1.1 200") < 2:
            raw += await asyncio.wait_for(reader.read(10_000), 3)


@pytest.mark.parametrize("handoff", ["absent", "null", "null_ids"])
@pytest.mark.parametrize("make", [completion, chat])
async def test_missing_handoff(cluster: SimCluster, client: Client, handoff: Any, make: Any) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="missing_handoff", handoff=handoff, count=1)
    choice = (await client.context(worker, make()))["choices"][0]
    if handoff == "absent":
        assert "disaggregated_params" not in choice
    elif handoff == "null":
        assert choice["disaggregated_params"] is None
    else:
        assert choice["disaggregated_params"]["disagg_request_id"] is None
        assert choice["disaggregated_params"]["ctx_request_id"] is None


async def test_missing_ids(cluster: SimCluster, client: Client) -> None:
    cluster.context_workers[0].add_fault(kind="missing_ids")
    for body in (completion(), chat()):
        assert (await client.context(cluster.context_workers[0], body))["prompt_token_ids"] is None


@pytest.mark.parametrize("reason", ["stop", "timeout", "cancelled", None])
async def test_context_finishes(cluster: SimCluster, client: Client, reason: str | None) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="finish", finish_reason=reason, count=1)
    choice = (await client.context(worker, completion()))["choices"][0]
    assert choice["finish_reason"] == reason
    assert choice["disaggregated_params"]["disagg_request_id"] is not None
    worker.add_fault(kind="finish", handoff="null_ids", count=1)
    choice = (await client.context(worker, completion()))["choices"][0]
    assert choice["disaggregated_params"]["disagg_request_id"] is None
    assert cluster.kv.counts().stored == 0
