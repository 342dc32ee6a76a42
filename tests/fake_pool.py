"""A pool whose connections are scripted: no sockets, raw bytes in and out."""

import asyncio
from typing import Any

from fake_loop import FakeLoop
from fake_transport import FakeTransport

from proxy.config.address import parse_worker_address
from proxy.errors import ProxyError
from proxy.upstream.connection import WorkerConnection
from proxy.upstream.pool import ConnectionPool

REQUEST = (b"POST /v1 HTTP/1.1\r\nhost: w\r\ncontent-length: 2\r\n\r\n", b"{}")


class FakeConnections(ConnectionPool):
    """Connects at once, or as `gates` and `errors` say.

    Attributes:
        loop: its clock.
        transports: of all connections that were made, in order.
        gates: futures that connects wait for, one each, first come first served.
        errors: what the next connects raise.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(parse_worker_address("worker:8001"), **options)
        self.loop = FakeLoop()
        self._loop = self.loop  # type: ignore[assignment]
        self.transports: list[FakeTransport] = []
        self.gates: list[asyncio.Future[None]] = []
        self.errors: list[BaseException] = []

    async def _open_connection(self) -> WorkerConnection:
        if self.gates:
            await self.gates.pop(0)
        if self.errors:
            raise self.errors.pop(0)
        connection = WorkerConnection(self, self._loop)
        self.transports.append(FakeTransport(connection))
        return connection

    async def new(self, *, reused: bool = False) -> tuple[WorkerConnection, FakeTransport]:
        """A connection that nobody else holds."""
        connection = await self.connect().future
        connection.reused = reused
        return connection, self.transports[-1]

    @property
    def counts(self) -> tuple[int, int]:
        return self.open_connections, self.idle_connections


class Sink:
    """Keeps what is relayed to it."""

    def __init__(self, *, framed: bool = False) -> None:
        self.framed = framed
        self.pieces: list[bytes] = []
        self.last: bytes | None = None
        self.error: ProxyError | None = None

    def write(self, data: bytes) -> None:
        assert not self.over
        self.pieces.append(data)

    def end(self, data: bytes) -> None:
        assert not self.over
        self.last = data

    def broken(self, error: ProxyError) -> None:
        assert not self.over
        self.error = error

    @property
    def over(self) -> bool:
        return self.last is not None or self.error is not None

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces) + (self.last or b"")


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(6):
        await asyncio.sleep(0)
