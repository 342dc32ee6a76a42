"""A worker's answer straight to the client's transport: scripted worker on one side, scripted client on the other."""

import asyncio
from typing import Any

import pytest
from fake_downstream import GET, App, Connection, Held, parse, settle
from fake_pool import REQUEST, FakeConnections
from fake_transport import FakeTransport

from proxy.downstream.cycle import RequestCycle
from proxy.downstream.sink import RelaySink
from proxy.errors import ClientGone, ConnectionBroken
from proxy.upstream.connection import WorkerConnection

OLD = GET.replace(b"1.1", b"1.0")
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
OUT = (
    b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
TYPE = [(b"content-type", b"text/event-stream")]
EVENT = b"data: 1\n\n"
FRAME = b"9\r\ndata: 1\n\n\r\n"
END = b"0\r\n\r\n"


class Relay:
    """One request whose answer a worker has begun."""

    def __init__(self) -> None:
        self.held = Held()
        self.pool = FakeConnections()
        self.client: Connection
        self.worker: FakeTransport
        self.source: WorkerConnection
        self.exchange = 0
        self.cycle: RequestCycle
        self.sink: RelaySink

    async def begin(
        self,
        *,
        request: bytes = GET,
        head: bytes = HEAD,
        headers: list[tuple[bytes, bytes]] | None = None,
        held: bytes = b"",
    ) -> None:
        self.client = Connection(App(self.held))
        await self.client.send(request)
        self.cycle = self.held.cycles[-1]
        self.source, self.worker = await self.pool.new()
        self.exchange = self.source.send(REQUEST)
        task = asyncio.create_task(self.source.head())
        await asyncio.sleep(0)
        self.worker.receive(head + held)
        await task
        self.start(TYPE if headers is None else headers)

    def start(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.sink = self.cycle.relay(200, list(headers), self.source)
        self.source.relay(self.sink)

    async def finish(self) -> None:
        self.held.release()
        await settle()
        assert self.client.tasks == 0


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


@pytest.mark.parametrize("how", ["eof", "lost", "reset"])
async def test_a_client_that_leaves_ends_the_exchange_at_once(relay: Relay, how: str) -> None:
    await relay.begin()
    relay.cycle.watch(lambda: relay.source.abort(relay.exchange, ClientGone("left")))
    relay.worker.receive(FRAME)
    relay.client.take()
    if how == "eof":
        relay.client.transport.receive_eof()
    else:
        relay.client.transport.lose(None if how == "lost" else ConnectionResetError())
    assert relay.worker.aborted  # in the same turn of the loop
    assert isinstance(relay.sink.done.result(), ClientGone)
    relay.sink.write(FRAME)
    relay.sink.flush_head()
    relay.sink.end(FRAME)
    relay.sink.broken(ConnectionBroken("x", retry=ConnectionBroken.retry))
    relay.sink.pause()
    relay.sink.resume()
    relay.sink.close(EVENT)
    relay.sink.abort()
    assert isinstance(relay.sink.done.result(), ClientGone)
    assert relay.client.take() == b""
    await relay.finish()
    assert relay.pool.counts == (0, 0)
    assert relay.client.loop.armed == []


async def test_a_client_that_left_before_the_relay_began(relay: Relay) -> None:
    relay.client = Connection(App(relay.held))
    await relay.client.send(GET)
    relay.cycle = relay.held.cycles[-1]
    for held in (b"", FRAME, FRAME + END):
        relay.source, relay.worker = await relay.pool.new()
        exchange = relay.source.send(REQUEST)
        task = asyncio.create_task(relay.source.head())
        await asyncio.sleep(0)
        relay.worker.receive(HEAD + held)
        await task
        relay.client.transport.lose()
        relay.start(TYPE)
        assert isinstance(relay.sink.done.result(), ClientGone)
        relay.source.abort(exchange, ClientGone("left"))
    assert relay.client.take() == b""
    await relay.finish()


@pytest.mark.parametrize("sent", [b"", FRAME, FRAME + b"9\r\ndata: 2\n\n", b"1\r\nd\r\n8\r\nata: 1\n\n\r\n"])
@pytest.mark.parametrize("request_line", [GET, OLD], ids=["1.1", "1.0"])
async def test_an_error_event_between_two_events(relay: Relay, sent: bytes, request_line: bytes) -> None:
    await relay.begin(request=request_line)
    if sent:
        relay.worker.receive(sent)
    relay.worker.lose()
    assert isinstance(relay.sink.done.result(), ConnectionBroken)
    assert relay.sink.between_events
    relay.sink.close(b"data: error\n\n")
    (response,) = relay.client.responses()
    assert response.body.endswith(b"data: error\n\n")
    assert relay.client.closed
    await relay.finish()
    assert relay.client.loop.armed == []
    assert relay.pool.counts == (0, 0)


async def test_close_without_an_event(relay: Relay) -> None:
    await relay.begin()
    relay.worker.receive(FRAME)
    relay.worker.lose()
    relay.sink.close()
    (response,) = relay.client.responses()
    assert response.body == EVENT
    relay.sink.close(b"again")
    assert relay.client.take() == b""
    await relay.finish()


@pytest.mark.parametrize("sent", [b"3\r\ndat\r\n", b"9\r\ndata: 1\n", FRAME + b"1\r\nd\r\n"])
async def test_inside_an_event_the_connection_is_aborted(
    relay: Relay, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await relay.begin()
    relay.worker.receive(sent)
    relay.worker.lose()
    assert not relay.sink.between_events
    relay.sink.abort()
    assert relay.client.transport.aborted
    relay.held.release()
    await settle()
    assert not relay.client.take().endswith(END)
    assert caplog.records == []  # the application did what it could
    assert relay.client.loop.armed == []


async def test_nothing_is_added_to_a_body_of_known_length(relay: Relay) -> None:
    await relay.begin(
        head=b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n", headers=[(b"content-length", b"90")]
    )
    relay.worker.receive(EVENT)
    relay.worker.lose()
    assert not relay.sink.between_events
    relay.sink.abort()
    assert relay.client.transport.aborted
    await relay.finish()


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


async def test_an_application_that_returns_before_the_relay_ends_cuts_it_off(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    await relay.begin()
    relay.worker.receive(FRAME)
    relay.held.release()
    await settle()
    assert relay.client.closed
    assert "without completing" in caplog.text
    relay.worker.receive(FRAME)
    assert relay.client.take() == OUT + FRAME


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


async def test_watch() -> None:
    held = Held()
    connection = Connection(App(held))
    calls: list[Any] = []
    await connection.send(GET)
    cycle = held.cycles[0]
    cycle.watch(lambda: calls.append("first"))
    cycle.watch(lambda: calls.append("second"))
    connection.transport.lose()
    assert calls == ["second"]
    cycle.watch(lambda: calls.append("late"))
    assert calls == ["second", "late"]
    cycle.watch(None)
    held.release()
    await settle()
    assert calls == ["second", "late"]


async def test_watch_ends_with_the_answer() -> None:
    held = Held()
    connection = Connection(App(held))
    calls: list[Any] = []
    await connection.send(GET)
    cycle = held.cycles[0]
    cycle.watch(lambda: calls.append("left"))
    cycle.respond(200, [], b"")
    held.release()
    await settle()
    connection.transport.lose()
    assert calls == []
    assert not cycle.disconnected
    await settle()
