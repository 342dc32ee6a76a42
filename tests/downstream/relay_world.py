"""One request whose answer comes from a scripted worker."""

import asyncio

from fake_downstream import GET, App, Connection, Held, settle
from fake_pool import REQUEST, FakeConnections
from fake_transport import FakeTransport

from proxy.downstream.cycle import RequestCycle
from proxy.downstream.sink import RelaySink
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
