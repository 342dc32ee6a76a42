"""A worker's answer straight to the client's transport: scripted worker on one side, scripted client on the other."""

import asyncio

import pytest
from fake_downstream import GET, App, Connection, parse, settle
from fake_pool import REQUEST
from relay_world import END, EVENT, FRAME, HEAD, OLD, OUT, TYPE, Relay


@pytest.fixture
async def relay() -> Relay:
    return Relay()


async def test_frames_go_out_as_they_came_and_at_once(relay: Relay) -> None:
    await relay.begin()
    assert relay.client.take() == b""
    relay.worker.receive(FRAME)
    assert relay.client.transport.pieces == [OUT + FRAME]  # head and first piece in one write
    relay.client.take()
    odd = b"0009\r\ndata: 2\n\n\r\n" + FRAME
    relay.worker.receive(odd)
    assert relay.client.transport.pieces == [odd]
    relay.client.take()
    relay.worker.receive(FRAME + END)
    assert relay.client.transport.pieces == [FRAME + END]  # the end in one write
    assert relay.sink.done.result() is None
    assert relay.sink.bytes_relayed == len(FRAME * 3 + odd + END) - len(FRAME)
    assert relay.sink.first_byte_at > 0
    assert relay.pool.counts == (1, 1)
    await relay.finish()
    assert not relay.client.closed
    await relay.client.send(GET)
    assert len(relay.held.cycles) == 2


async def test_the_head_alone_can_be_flushed(relay: Relay) -> None:
    await relay.begin()
    relay.sink.flush_head()
    assert relay.client.take() == OUT
    relay.sink.flush_head()
    assert relay.sink.first_byte_at == 0
    relay.worker.receive(END)
    assert relay.client.take() == END
    relay.sink.flush_head()
    assert relay.client.take() == b""
    await relay.finish()


async def test_an_empty_answer(relay: Relay) -> None:
    await relay.begin(held=END)
    assert relay.client.take() == OUT + END
    await relay.finish()


async def test_partial_frames_are_framed_anew(relay: Relay) -> None:
    await relay.begin(held=b"9\r\nda")
    assert parse(relay.client.take() + END)[0].body == b"da"
    relay.worker.receive(b"ta: 1\n\n\r")
    assert relay.client.take() == b"7\r\nta: 1\n\n\r\n"
    relay.worker.receive(b"\n" + END)
    assert relay.client.take() == END
    await relay.finish()


async def test_trailers_and_extensions_are_dropped(relay: Relay) -> None:
    await relay.begin()
    relay.worker.receive(b"9;a=b\r\ndata: 1\n\n\r\n0\r\nx: y\r\n\r\n")
    assert relay.client.take() == OUT + FRAME + END
    await relay.finish()


async def test_a_body_of_known_length(relay: Relay) -> None:
    await relay.begin(
        head=b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", headers=[(b"content-length", b"9")]
    )
    assert not relay.sink.framed
    relay.worker.receive(b"data:")
    relay.worker.receive(b" 1\n\n")
    assert relay.client.take() == b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 9\r\n\r\ndata: 1\n\n"
    await relay.finish()
    assert not relay.client.closed


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"content-length: 9\r\n\r\n", EVENT),
        (b"transfer-encoding: chunked\r\n\r\n", FRAME + END),
        (b"\r\n", EVENT),
    ],
)
@pytest.mark.parametrize("request_line", [GET, OLD], ids=["1.1", "1.0"])
async def test_every_framing_of_the_worker_to_every_client(
    relay: Relay, head: bytes, body: bytes, request_line: bytes
) -> None:
    for at in range(len(body) + 1):
        await relay.begin(request=request_line, head=b"HTTP/1.1 200 OK\r\n" + head, held=body[:at])
        if body[at:]:
            relay.worker.receive(body[at:])
        relay.worker.receive_eof()
        await settle()
        (response,) = relay.client.responses()
        assert response.body == EVENT
        assert relay.sink.done.result() is None
        await relay.finish()
        assert relay.client.closed is (request_line is OLD)


async def test_a_client_that_is_slow_pauses_the_worker(relay: Relay) -> None:
    await relay.begin()
    big = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    relay.client.transport.stall()
    relay.worker.receive(big)
    assert relay.worker.reading
    relay.worker.receive(big * 2)
    assert not relay.worker.reading
    assert relay.source.reading_paused
    relay.client.transport.drain()
    assert relay.worker.reading
    relay.worker.receive(END)
    await relay.finish()


async def test_held_bytes_pause_the_worker_too(relay: Relay) -> None:
    big = b"20000\r\n" + b"x" * 0x20000 + b"\r\n"
    relay.client = Connection(App(relay.held))
    await relay.client.send(GET)
    relay.cycle = relay.held.cycles[-1]
    relay.source, relay.worker = await relay.pool.new()
    relay.source.send(REQUEST)
    task = asyncio.create_task(relay.source.head())
    await asyncio.sleep(0)
    relay.worker.receive(HEAD + big)
    relay.worker.receive(big)
    assert not relay.worker.reading
    await task
    relay.client.transport.stall()
    relay.start(TYPE)
    assert not relay.worker.reading
    relay.client.transport.drain()
    assert relay.worker.reading
    relay.worker.receive(END)
    await relay.finish()


async def test_a_client_that_has_not_read_the_answer_before(relay: Relay) -> None:
    """The transport was full before the relay began: it will not say so again."""
    relay.client = Connection(App(relay.held))
    await relay.client.send(GET + GET)
    relay.client.transport.stall()
    relay.held.cycles[0].respond(200, [], b"x" * 100_000)
    relay.held.release()
    await settle()
    relay.cycle = relay.held.cycles[1]
    relay.source, relay.worker = await relay.pool.new()
    relay.source.send(REQUEST)
    task = asyncio.create_task(relay.source.head())
    await asyncio.sleep(0)
    relay.worker.receive(HEAD + FRAME)
    await task
    relay.start(TYPE)
    assert not relay.worker.reading
    relay.client.transport.drain()
    assert relay.worker.reading
    relay.worker.receive(END)
    await relay.finish()
    assert len(relay.client.responses()) == 2


async def test_the_connection_is_still_used_after_an_answer_that_closed_upstream(relay: Relay) -> None:
    await relay.begin(head=HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    relay.worker.receive(FRAME + END)
    await relay.finish()
    assert relay.pool.counts == (0, 0)
    assert not relay.client.closed


async def test_a_request_that_says_close(relay: Relay) -> None:
    await relay.begin(request=GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    relay.worker.receive(FRAME + END)
    (response,) = relay.client.responses()
    assert response.headers["connection"] == "close"
    assert relay.client.closed
    await relay.finish()


async def test_the_next_pipelined_request_starts_when_the_relay_ends(relay: Relay) -> None:
    await relay.begin(request=GET + GET)
    assert len(relay.held.cycles) == 1
    relay.worker.receive(FRAME + END)
    assert len(relay.held.cycles) == 1  # not within the worker's call
    relay.held.release(0)
    await settle()
    assert len(relay.held.cycles) == 2
    relay.held.cycles[1].respond(200, [], b"two")
    assert [response.body for response in relay.client.responses()] == [EVENT, b"two"]
    await relay.finish()


async def test_an_answer_that_has_begun_goes_on(relay: Relay) -> None:
    for request_line in (GET, OLD):
        relay.client = Connection(App(relay.held))
        await relay.client.send(request_line)
        relay.cycle = relay.held.cycles[-1]
        relay.cycle.begin(200, list(TYPE))
        relay.cycle.add(b": wait\n\n")
        relay.source, relay.worker = await relay.pool.new()
        relay.source.send(REQUEST)
        task = asyncio.create_task(relay.source.head())
        await asyncio.sleep(0)
        relay.worker.receive(HEAD)
        await task
        relay.start([])
        assert relay.sink.comment(b": more\n\n")
        relay.worker.receive(FRAME)
        assert not relay.sink.comment(b": too late\n\n")
        relay.worker.receive(END)
        (response,) = relay.client.responses()
        assert response.body == b": wait\n\n: more\n\n" + EVENT
        await relay.finish()


async def test_a_comment_brings_the_head_along(relay: Relay) -> None:
    await relay.begin()
    assert relay.sink.comment(b": wait\n\n")
    relay.worker.receive(FRAME + END)
    (response,) = relay.client.responses()
    assert response.body == b": wait\n\n" + EVENT
    assert not relay.sink.comment(b": wait\n\n")
    await relay.finish()
