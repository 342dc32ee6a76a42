"""Many streams at once: every byte right, and nothing left behind."""

import asyncio
import json

import httpx
import pytest
from e2e_bodies import CHAT, chat, completion, path_of, streamed_text
from program import eventually

from proxy.sim import expected_text

STREAMS = 300
SECONDS = 60


async def ask(port, body):
    """One stream on a connection of its own; returns the status and the body's text."""
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"POST {path_of(body)} HTTP/1.1\r\nhost: proxy\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = int(head.split(" ", 2)[1])
        pieces = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        return status, b"".join(pieces).decode()
    finally:
        writer.close()


def body_of(number):
    make = chat if number % 2 else completion
    body = make(stream=True, max_tokens=20, ignore_eos=True)
    if number % 2:
        body["messages"].append({"role": "user", "content": f"No. {number} " + "ä" * number})
    else:
        body["prompt"] = f"No. {number} " + "語" * number
    return body


@pytest.mark.parametrize("base64", [False, True], ids=["array", "base64"])
async def test_three_hundred_streams(make_stack, base64):
    options = {"context": 2, "generation": 2, "speed": {"decode_ms": 40.0}}
    stack = make_stack(options, gen_tokids_ctxbytes=base64)
    taken = stack.cluster.kv.counts().taken
    bodies = [body_of(number) for number in range(STREAMS)]
    async with asyncio.timeout(SECONDS):
        answers = await asyncio.gather(*(ask(stack.port, body) for body in bodies))
    for body, (status, text) in zip(bodies, answers, strict=True):
        assert status == 200
        assert streamed_text(text) == expected_text(body)
    running = [worker.engine.max_running for worker in stack.cluster.generation_workers]
    assert sum(running) > STREAMS / 2, "the streams did not run at the same time"
    assert max(running) - min(running) < STREAMS / 5, "load balancing"
    assert stack.cluster.kv.counts().taken == taken + STREAMS
    assert stack.cluster.kv.leftover == 0
    await asyncio.to_thread(check_connections, stack)


def check_connections(stack):
    """What is open to the workers is idle, and known to both sides."""
    eventually(lambda: not stack.metric("worker_connections", state="busy"), what="no busy connections")

    def counts():
        opened = sum(worker.connections.open for worker in stack.cluster.workers)
        probing = opened - stack.metric("worker_connections", state="idle")
        return 0 <= probing <= len(stack.cluster.workers)  # health probes keep a connection of their own

    eventually(counts, what="equal counts of connections")
    assert not stack.metric("worker_in_flight")


def test_idle_connections_are_closed_before_the_workers_do_it(make_stack):
    """Workers close after 5 s; a request that is written in that moment would be lost."""
    stack = make_stack({"generation": 2})
    for _ in range(3):
        assert stack.post(chat()).status_code == 200
    assert stack.metric("worker_connections", state="idle") >= 2
    eventually(lambda: not stack.metric("worker_connections"), 4.9, "no connections")
    assert stack.post(chat()).status_code == 200


async def test_clients_that_leave_at_random(make_stack):
    """Some leave in the context leg, some in the stream; the others are not disturbed."""
    speed = {"decode_ms": 10.0, "prefill_tokens_per_second": 20_000.0}
    stack = make_stack({"context": 2, "generation": 2, "speed": speed})

    async def leave(number):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01 + number % 20 * 0.015):
                await ask(stack.port, {**body_of(number), "max_tokens": 1000})

    async def stay(number):
        body = body_of(number)
        status, text = await ask(stack.port, body)
        assert status == 200
        assert streamed_text(text) == expected_text(body)

    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*(leave(number) if number % 3 else stay(number) for number in range(90)))

    def quiet():
        return not any(worker.engine.running for worker in stack.cluster.workers)

    await asyncio.to_thread(eventually, quiet, 5.0, "idle engines")
    await asyncio.to_thread(check_connections, stack)
    # Who leaves between the legs may leave a hand-off behind; it is bounded by those who left.
    stack.expected_leftover = stack.cluster.kv.leftover
    assert stack.expected_leftover <= 60


async def test_many_requests_on_few_connections(make_stack):
    """Keep-alive on both sides, whole answers."""
    stack = make_stack({"context": 2, "generation": 2})
    total = sum(worker.connections.total for worker in stack.cluster.workers)
    limits = httpx.Limits(max_connections=8)
    url = f"http://127.0.0.1:{stack.port}"
    async with httpx.AsyncClient(base_url=url, limits=limits, trust_env=False, timeout=20) as client:

        async def post(number):
            body = {**body_of(number | 1), "stream": False}
            response = await client.post(CHAT, json=body)
            assert response.json()["choices"][0]["message"]["content"] == expected_text(body)

        await asyncio.gather(*(post(number) for number in range(200)))
    opened = sum(worker.connections.total for worker in stack.cluster.workers) - total
    assert opened <= 16


async def test_a_limit_on_connections(make_stack):
    """Requests above it wait for their turn, and each gets its own answer."""
    stack = make_stack({"speed": {"decode_ms": 1.0}}, max_connections_per_worker=3)
    bodies = [{**body_of(number), "max_tokens": 5} for number in range(40)]
    answers = await asyncio.gather(*(ask(stack.port, body) for body in bodies))
    for body, (status, text) in zip(bodies, answers, strict=True):
        assert status == 200
        assert streamed_text(text) == expected_text(body)
    # The health probes have a connection of their own.
    assert all(worker.connections.max_open <= 4 for worker in stack.cluster.workers)


async def test_workers_that_close_just_as_a_request_comes(make_stack):
    """The race of keep-alive: idle connections end at about the time of the next request."""
    stack = make_stack({"keep_alive_seconds": 0.03})
    for number in range(60):
        body = {**body_of(number), "max_tokens": 3}
        status, text = await ask(stack.port, body)
        assert status == 200, text
        assert streamed_text(text) == expected_text(body)
        await asyncio.sleep(0.027 + number % 7 * 0.001)
    total = sum(worker.connections.total for worker in stack.cluster.workers)
    assert total > 10, "no connection was ever closed"
