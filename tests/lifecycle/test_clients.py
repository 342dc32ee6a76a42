"""The two kinds of client over one suite: on our own server, and on any ASGI server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest
from fake_downstream import App, Connection, parse, settle
from fake_pool import REQUEST, FakeConnections
from fake_transport import FakeTransport

from proxy.downstream.cycle import EXTENSION
from proxy.errors import ClientGone, ConnectionBroken
from proxy.lifecycle.client import Client, PlainClient, RelayClient
from proxy.upstream.connection import WorkerConnection

GET = b"GET / HTTP/1.1\r\nhost: p\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
FRAME = b"9\r\ndata: 1\n\n\r\n"
EVENT = b"data: 1\n\n"
END = b"0\r\n\r\n"

Behaviour = Callable[[Client], Awaitable[None]]


class World(Protocol):
    """A client that can be told to leave, and what it has got."""

    async def serve(self, behaviour: Behaviour) -> None: ...
    def leave(self) -> None: ...
    def stall(self) -> None: ...
    def drain(self) -> None: ...
    def got(self) -> tuple[int, dict[str, str], bytes]: ...
    @property
    def complete(self) -> bool: ...


class OwnServer:
    """Our own server."""

    def __init__(self) -> None:
        self.raw = b""

    async def serve(self, behaviour: Behaviour) -> None:
        async def run(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            client = RelayClient(scope["extensions"][EXTENSION])
            try:
                await behaviour(client)
            finally:
                client.close()

        self.connection = Connection(App(run))
        await self.connection.send(GET)

    def leave(self) -> None:
        self.connection.transport.lose()

    def stall(self) -> None:
        self.connection.transport.stall()

    def drain(self) -> None:
        self.connection.transport.drain()

    def got(self) -> tuple[int, dict[str, str], bytes]:
        self.raw += self.connection.take()
        (response,) = parse(self.raw if self.complete else self.raw + END)
        return response.status, response.headers, response.body

    @property
    def complete(self) -> bool:
        self.raw += self.connection.take()
        return self.raw.endswith(END) or b"content-length" in self.raw


class OtherServer:
    """Another ASGI server: `send` waits while the client does not read, and raises when it has left."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self._gone = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._received = False

    async def serve(self, behaviour: Behaviour) -> None:
        client = PlainClient(self._receive, self._send)

        async def run() -> None:
            try:
                await behaviour(client)
            finally:
                client.close()

        self.task = asyncio.create_task(run())
        await settle()

    async def _receive(self) -> Any:
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self._writable.wait()
        if self._gone.is_set():
            raise OSError("the client has disconnected")
        self.messages.append(message)

    def leave(self) -> None:
        self._gone.set()
        self._writable.set()

    def stall(self) -> None:
        self._writable.clear()

    def drain(self) -> None:
        self._writable.set()

    def got(self) -> tuple[int, dict[str, str], bytes]:
        start, *bodies = self.messages
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return start["status"], headers, b"".join(message["body"] for message in bodies)

    @property
    def complete(self) -> bool:
        return bool(self.messages) and self.messages[-1].get("more_body") is False


@pytest.fixture(params=[OwnServer, OtherServer], ids=["own", "any"])
async def world(request: pytest.FixtureRequest) -> World:
    return request.param()


class Source:
    """A worker that has sent the head of its answer."""

    def __init__(self, pool: FakeConnections, connection: WorkerConnection, transport: FakeTransport) -> None:
        self.pool = pool
        self.connection = connection
        self.transport = transport
        self.exchange = 0


async def source(held: bytes = b"") -> Source:
    pool = FakeConnections()
    made = Source(pool, *await pool.new())
    made.exchange = made.connection.send(REQUEST)
    task = asyncio.create_task(made.connection.head())
    await asyncio.sleep(0)
    made.transport.receive(HEAD + held)
    await task
    return made


async def test_respond(world: World) -> None:
    async def behave(client: Client) -> None:
        assert not client.gone
        await client.respond(429, [(b"retry-after", b"1")], b"busy")
        assert client.status == 429

    await world.serve(behave)
    status, headers, body = world.got()
    assert (status, body) == (429, b"busy")
    assert headers["retry-after"] == "1"
    assert headers["content-length"] == "4"
    assert world.complete


async def test_respond_to_a_client_that_has_left(world: World) -> None:
    go = asyncio.Event()
    ended: list[BaseException] = []

    async def behave(client: Client) -> None:
        client.watch(lambda: None)
        await go.wait()
        assert client.gone
        try:
            await client.respond(200, [], b"x")
        except ClientGone as error:
            ended.append(error)

    await world.serve(behave)
    world.leave()
    await settle()
    go.set()
    await settle()
    assert len(ended) == 1


async def test_relay(world: World) -> None:
    relayed = []
    worker = await source(FRAME)

    async def behave(client: Client) -> None:
        relayed.append(await client.relay(200, [(b"content-type", b"text/event-stream")], worker.connection))
        assert client.status == 200

    await world.serve(behave)
    status, headers, body = world.got()
    assert (status, headers["content-type"], body) == (200, "text/event-stream", EVENT)
    worker.transport.receive(FRAME)
    await settle()
    assert world.got()[2] == EVENT * 2  # flushed, not gathered
    worker.transport.receive(FRAME + END)
    await settle()
    assert world.got()[2] == EVENT * 3
    assert world.complete
    ((error, size, first_byte_at),) = relayed
    assert error is None
    assert size >= 3 * len(EVENT)
    assert first_byte_at > 0
    assert worker.pool.counts == (1, 1)


async def test_the_head_does_not_wait_for_the_body(world: World) -> None:
    worker = await source()

    async def behave(client: Client) -> None:
        await client.relay(200, [], worker.connection)

    await world.serve(behave)
    assert world.got()[0] == 200
    worker.transport.receive(END)
    await settle()
    assert world.complete


async def test_watch_while_relaying(world: World) -> None:
    worker = await source(FRAME)
    relayed = []

    async def behave(client: Client) -> None:
        client.watch(lambda: worker.connection.abort(worker.exchange, ClientGone("left")))
        relayed.append(await client.relay(200, [], worker.connection))
        assert client.gone
        await client.break_off(b"nobody reads this")

    await world.serve(behave)
    world.leave()
    await settle()
    assert worker.transport.aborted
    assert isinstance(relayed[0].error, ClientGone)
    assert worker.pool.counts == (0, 0)


async def test_watch_before_there_is_anything_to_relay(world: World) -> None:
    calls: list[str] = []
    done = asyncio.Event()

    async def behave(client: Client) -> None:
        client.watch(lambda: calls.append("left"))
        await done.wait()
        client.watch(lambda: calls.append("late"))

    await world.serve(behave)
    world.leave()
    await settle()
    assert calls == ["left"]
    done.set()
    await settle()
    assert calls == ["left", "late"]


async def test_a_closed_client_is_not_watched(world: World) -> None:
    calls: list[str] = []

    async def behave(client: Client) -> None:
        client.watch(lambda: calls.append("left"))
        await client.respond(200, [], b"x")

    await world.serve(behave)
    world.leave()
    await settle()
    assert calls == []


async def test_a_worker_that_breaks_off_between_two_events(world: World) -> None:
    worker = await source(FRAME)

    async def behave(client: Client) -> None:
        relayed = await client.relay(200, [], worker.connection)
        assert isinstance(relayed.error, ConnectionBroken)
        assert client.between_events
        await client.break_off(b"data: error\n\n")

    await world.serve(behave)
    worker.transport.lose()
    await settle()
    assert world.got()[2] == EVENT + b"data: error\n\n"
    assert world.complete


async def test_a_worker_that_breaks_off_inside_an_event(world: World) -> None:
    worker = await source(FRAME + b"4\r\ndata\r\n")

    async def behave(client: Client) -> None:
        relayed = await client.relay(200, [], worker.connection)
        assert relayed.error is not None
        assert not client.between_events
        await client.break_off(None)

    await world.serve(behave)
    worker.transport.lose()
    await settle()
    assert world.got()[2] == EVENT + b"data"
    assert not world.complete


async def test_a_slow_client_pauses_the_worker(world: World) -> None:
    worker = await source()

    async def behave(client: Client) -> None:
        await client.relay(200, [], worker.connection)

    await world.serve(behave)
    world.stall()
    big = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    sent = 0
    while worker.transport.reading:
        worker.transport.receive(big)
        await settle()
        sent += 0x8000
        assert sent < 10 * 0x8000
    world.drain()
    await settle()
    assert worker.transport.reading
    worker.transport.receive(END)
    await settle()
    assert len(world.got()[2]) == sent
    assert world.complete


async def test_comments_before_an_answer(world: World) -> None:
    go = asyncio.Event()

    async def behave(client: Client) -> None:
        assert client.comment([(b"content-type", b"text/event-stream")])
        assert client.comment([])
        await go.wait()
        assert client.begun
        await client.respond(503, [(b"content-type", b"application/json")], b'{"error":{}}')
        assert not client.comment([])

    await world.serve(behave)
    await settle()
    status, headers, body = world.got()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert body.startswith(b":")
    go.set()
    await settle()
    body = world.got()[2]
    assert b"data: " in body
    assert world.complete


async def test_comments_before_a_relay(world: World) -> None:
    worker = await source()

    async def behave(client: Client) -> None:
        assert client.comment([(b"content-type", b"text/event-stream")])
        await client.relay(200, [], worker.connection)
        assert not client.comment([])

    await world.serve(behave)
    worker.transport.receive(FRAME)
    worker.transport.receive(END)
    await settle()
    body = world.got()[2]
    assert body.startswith(b":")
    assert body.endswith(EVENT)
    assert body.count(EVENT) == 1


async def test_no_comment_for_a_client_that_has_left(world: World) -> None:
    go = asyncio.Event()
    sent: list[bool] = []

    async def behave(client: Client) -> None:
        client.watch(lambda: None)
        await go.wait()
        sent.append(client.comment([]))

    await world.serve(behave)
    world.leave()
    await settle()
    go.set()
    await settle()
    assert sent == [False]


async def test_cancelled_while_relaying() -> None:
    """The request is cancelled at the end of a drain; the listener ends with it."""
    world = OtherServer()
    worker = await source(FRAME)

    async def behave(client: Client) -> None:
        client.watch(lambda: None)
        await client.relay(200, [], worker.connection)

    await world.serve(behave)
    world.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await world.task
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
