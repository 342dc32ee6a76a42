"""A client on each of the two kinds of server, and a worker to be relayed from."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from fake_downstream import App, Connection, parse, settle
from fake_pool import REQUEST, FakeConnections
from fake_transport import FakeTransport

from proxy.downstream.cycle import EXTENSION
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
