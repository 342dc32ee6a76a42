"""A wire tap between the proxy and a worker: every byte of both directions."""

import asyncio

from proxy.sim import ThreadedSimCluster

_PIECE = 64 * 1024


class Tap:
    """Forwards connections to a worker, in the workers' event loop, and keeps what passes."""

    def __init__(self, cluster: ThreadedSimCluster, target: str) -> None:
        self._cluster = cluster
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = ""
        self.sent = bytearray()  # by the proxy
        self.received = bytearray()  # by the proxy, from the worker

    def start(self) -> "Tap":
        """Listen."""
        self._cluster.call(self._start())
        return self

    def stop(self) -> None:
        """Cut all connections."""
        self._cluster.call(self._stop())

    def clear(self) -> None:
        """Forget what has passed."""
        self.sent.clear()
        self.received.clear()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        worker_reader, worker_writer = await asyncio.open_connection(host, int(port))
        for source, sink, log in (
            (reader, worker_writer, self.sent),
            (worker_reader, writer, self.received),
        ):
            task = asyncio.ensure_future(_pump(source, sink, log))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, log: bytearray) -> None:
    try:
        while data := await source.read(_PIECE):
            log += data
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()


def body_of(message: bytes) -> bytes:
    """The body of one HTTP message, of either framing."""
    head, _, body = message.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    payload = b""
    while True:
        line, _, body = body.partition(b"\r\n")
        size = int(line, 16)
        payload += body[:size]
        assert body[size : size + 2] == b"\r\n"
        if size == 0:
            return payload
        body = body[size + 2 :]
