"""Clients that send or read too slowly, or not at all: none of them keeps a worker or a socket."""

import asyncio
import json
import socket

import pytest
from chaos_proxy import ChaosProxy, until
from e2e_bodies import CHAT, chat

LIMIT = 0.4
LONG = 60_000  # tokens: more than all buffers on the way hold
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
LONG_REQUEST = chat(stream=True, max_tokens=LONG, ignore_eos=True)
LONG_BODY = json.dumps(LONG_REQUEST).encode()


def run(chaos, then, **overrides):
    async def scenario():
        limits = {"header_timeout": LIMIT, "client_stall_timeout": LIMIT, **overrides}
        async with ChaosProxy("own", {"context": 1, "generation": 1}, **limits) as proxy:
            await then(proxy)
            await proxy.settled()
            assert (await proxy.ask(CHAT, chat())).status == 200
            await proxy.settled()

    chaos.call(scenario())


async def trickle(proxy, data, each, pause=0.02):
    """Write bytes a few at a time until the proxy has enough; returns what it said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = asyncio.ensure_future(reader.read())
    try:
        while not answer.done():
            assert loop.time() - began < 10, "the proxy has endless patience"
            writer.write(next(data) if each is None else each)
            await asyncio.sleep(pause)
    except StopIteration:
        pass
    text = await asyncio.wait_for(answer, 10)
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    return text, loop.time() - began


def test_a_trickling_head(chaos):
    """Slow loris: a header line now and then, for ever."""

    async def then(proxy):
        lines = iter([HEAD])

        def more():
            yield from lines
            number = 0
            while True:
                number += 1
                yield b"x-%d: 1\r\n" % number

        clients = [trickle(proxy, more(), None) for _ in range(20)]
        for text, seconds in await asyncio.gather(*clients):
            assert text.startswith(b"HTTP/1.1 408 ")
            assert b'"code":"request_timeout"' in text
            assert seconds < LIMIT + 2
        assert proxy.legs("context") == 0

    run(chaos, then)


def test_a_body_that_stops(chaos):
    async def then(proxy):
        text, seconds = await trickle(proxy, iter([HEAD + b"content-length: 1000\r\n\r\n", b'{"a":']), None)
        assert text.startswith(b"HTTP/1.1 408 ")
        assert LIMIT - 0.05 < seconds < LIMIT + 2
        assert proxy.legs("context") == 0

    run(chaos, then)


def test_connections_without_a_request(chaos):
    async def then(proxy):
        clients = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(50)]
        for reader, writer in clients:
            assert await asyncio.wait_for(reader.read(), LIMIT + 2) == b""
            writer.close()

    run(chaos, then)


async def stalled_stream(
    proxy, *, read_first=0, request=HEAD + b"content-length: %d\r\n\r\n" % len(LONG_BODY) + LONG_BODY
):
    """A client with a tiny receive buffer that asks for a long stream and reads next to nothing of it."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", proxy.port))
    await loop.sock_sendall(raw, request)
    if read_first:
        await loop.sock_recv(raw, read_first)
    return raw


def test_a_client_that_stops_reading(chaos):
    """The worker is paused meanwhile, and then told that nobody is there."""

    async def then(proxy):
        (worker,) = proxy.workers("generation")
        raw = await stalled_stream(proxy, read_first=100)
        try:
            await until(lambda: worker.engine.aborts == 1, "the abort", LIMIT + 3)
            await proxy.settled()
            assert await proxy.outcomes() == {"client_closed": 1}
        finally:
            raw.close()

    run(chaos, then, timeout_idle=LIMIT)


def test_the_idle_limit_spares_a_paused_worker(chaos):
    """Silence because the client does not read is not the worker's: everything arrives in the end."""

    async def then(proxy):
        raw = await stalled_stream(proxy, read_first=100)
        await asyncio.sleep(LIMIT * 3)
        reader, writer = await asyncio.open_connection(sock=raw, limit=2**24)
        text = await asyncio.wait_for(reader.readuntil(b"data: [DONE]\n\n\r\n0\r\n\r\n"), 20)
        assert text.endswith(b"0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        await proxy.settled()
        assert await proxy.outcomes() == {"ok": 1}

    run(chaos, then, timeout_idle=LIMIT, client_stall_timeout=30)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_half_closes_has_left(chaos, stream):
    """Its FIN is all that a departure looks like: no more work for it."""

    async def then(proxy):
        (worker,) = proxy.workers("generation")
        worker.add_fault(kind="hang", count=1)
        client = await proxy.connect()
        client.send(CHAT, chat(stream=stream))
        await until(lambda: proxy.legs("generation") == 1, "the leg")
        client.writer.write_eof()
        await until(lambda: worker.engine.aborts == 1, "the abort", 1.0)
        assert await asyncio.wait_for(client.reader.read(), 2) == b""
        await client.close()

    run(chaos, then)


LONG_ROUTES = {
    "chat": (CHAT, LONG_REQUEST),
    "generate": (
        "/generate",
        {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}},
    ),
    "several": (CHAT, {**LONG_REQUEST, "n": 2}),
}


async def stalled_on(proxy, route):
    """A client that has got as much of a long stream as it takes."""
    path, body = LONG_ROUTES[route]
    data = json.dumps(body).encode()
    head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(data))
    raw = await stalled_stream(proxy, request=head + data)
    await until(lambda: proxy.stalled_clients == 1, "the stall", 20)
    return raw


@pytest.mark.parametrize("route", LONG_ROUTES)
def test_the_drain_does_not_wait_for_a_slow_client(chaos, route):
    """Its time is over when it is over, however long a client may stall."""

    async def scenario():
        async with ChaosProxy("own", drain_timeout=0.2, client_stall_timeout=60) as proxy:
            raw = await stalled_on(proxy, route)
            proxy.stop()
            await until(lambda: not proxy.running_requests, "the end of the request")
            raw.close()

    chaos.call(scenario())


@pytest.mark.parametrize("route", LONG_ROUTES)
def test_a_stalled_client_of_another_server(chaos, route):
    """Servers need not end a `send` that nobody takes: the request ends all the same, and its workers are free."""

    async def scenario():
        async with ChaosProxy("uvicorn", client_stall_timeout=LIMIT) as proxy:
            raw = await stalled_on(proxy, route)
            await until(lambda: not proxy.service.admission.in_flight, "the end of the request", 20)
            raw.close()
            await proxy.settled()
            counts = {labels["outcome"]: n for labels, n in await proxy.metric("requests_total") if n}
            assert counts["client_closed"] == 1

    chaos.call(scenario())
    chaos.excuse("ASGI callable returned without completing response.", 1)
