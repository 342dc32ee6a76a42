"""What needs real sockets: resets, slow readers, bytes in flight."""

import asyncio
import contextlib
import socket
import struct
from typing import Any

from fake_downstream import answer, parse
from server_fakes import close, running, until

from proxy.config.address import parse_worker_address
from proxy.downstream.cycle import EXTENSION
from proxy.downstream.limits import Limits
from proxy.errors import ClientGone, ProxyError
from proxy.upstream.pool import ConnectionPool

GET = b"GET / HTTP/1.1\r\nhost: p\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: p\r\ncontent-length: %d\r\n\r\n"


async def count(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await answer(send, b"%d" % len((await receive())["body"]))


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, as a killed client does."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Worker:
    """Answers each request with frames until the connection ends.

    Attributes:
        sent: bytes handed to its socket.
        left: connections that the proxy has closed.
    """

    def __init__(self, frames: int, size: int) -> None:
        self.sent = 0
        self.left = 0
        self._frames = frames
        self._size = size

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = b"%x\r\n%b\r\n" % (self._size, b"x" * self._size)
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            for _ in range(self._frames):
                writer.write(frame)
                self.sent += len(frame)
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await reader.read()
        except ConnectionError:
            pass
        finally:
            self.left += 1
            writer.transport.abort()


class Relaying:
    """An application that relays a worker's answer as the proxy does."""

    def __init__(self, address: str) -> None:
        self.pool = ConnectionPool(parse_worker_address(address))
        self.errors: list[ProxyError | None] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        cycle = scope["extensions"][EXTENSION]
        source = await self.pool.connect().future
        exchange = source.send((GET,))
        cycle.watch(lambda: source.abort(exchange, ClientGone("left")))
        with contextlib.suppress(ClientGone):
            await source.head()
        sink = cycle.relay(200, [], source)
        source.relay(sink)
        self.errors.append(await sink.done)


@contextlib.asynccontextmanager
async def relaying(worker: Worker) -> Any:
    server = await asyncio.start_server(worker, "127.0.0.1", 0)
    async with server:
        app = Relaying(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with running(app) as serving:
            yield serving, app
        await app.pool.close()
        await until(lambda: app.pool.open_connections == 0)
        await asyncio.sleep(0.01)


async def test_large_bodies() -> None:
    async with running(count) as serving:
        reader, writer = await serving.connect()
        for size in (1, 100_000, 5_000_000):
            writer.write(POST % size + b"x" * size)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            assert await reader.readexactly(length) == b"%d" % size
        await close(writer)


async def test_a_refusal_is_read_by_a_client_that_is_still_sending() -> None:
    """512 KiB are on their way when the answer comes: a close with unread bytes would reset it away."""
    for length in (b"content-length: 100000000", b"transfer-encoding: chunked"):
        async with running(count, limits=Limits(max_body_bytes=1000, close_timeout=2)) as serving:
            reader, writer = await serving.connect()
            writer.write(b"POST / HTTP/1.1\r\nhost: p\r\n" + length + b"\r\n\r\n")
            for _ in range(8):
                writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0.002)
            (response,) = parse(await reader.read())
            assert response.status == 413
            await close(writer)
            await until(lambda serving=serving: not serving.server.server_state.connections)


async def test_a_client_that_does_not_read_is_cut_off_after_the_close_timeout() -> None:
    async def large(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await answer(send, b"x" * 20_000_000)

    async with running(large, limits=Limits(close_timeout=0.1)) as serving:
        _, writer = await serving.connect()
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        await until(lambda: serving.server.server_state.total_requests == 1)
        assert serving.server.server_state.connections
        await until(lambda: not serving.server.server_state.connections)
        await close(writer)


async def test_send_waits_for_a_client_that_does_not_read() -> None:
    sent = 0
    ended: list[BaseException] = []

    async def pour(scope: dict[str, Any], receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                sent += 65536
        except OSError as error:
            ended.append(error)

    async with running(pour) as serving:
        _, writer = await serving.connect()
        writer.write(GET)
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.05)
        (connection,) = serving.server._connections
        assert connection.transport.get_write_buffer_size() < 256 * 1024
        reset(writer)
        await until(lambda: bool(ended))


async def test_a_relay_in_full() -> None:
    worker = Worker(frames=200, size=50_000)
    async with relaying(worker) as (serving, app):
        reader, writer = await serving.connect()
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        raw = bytearray()
        while part := await reader.read(10_000):
            raw += part
            if len(raw) % 7 == 0:
                await asyncio.sleep(0)
        assert len(parse(bytes(raw))[0].body) == 200 * 50_000
        assert app.errors == [None]
        await close(writer)


async def test_a_slow_client_pauses_the_worker_and_leaving_ends_it() -> None:
    worker = Worker(frames=2000, size=50_000)
    async with relaying(worker) as (serving, app):
        _, writer = await serving.connect()
        writer.write(GET)
        before = -1
        while worker.sent != before:
            before = worker.sent
            await asyncio.sleep(0.05)
        assert worker.sent < 50_000_000
        (connection,) = serving.server._connections
        assert connection.transport.get_write_buffer_size() < 512 * 1024
        reset(writer)
        began = asyncio.get_running_loop().time()
        await until(lambda: worker.left == 1)
        assert asyncio.get_running_loop().time() - began < 0.5
        await until(lambda: bool(app.errors))
        assert isinstance(app.errors[0], ClientGone)


async def test_many_clients_that_leave_at_random_moments_leave_nothing_behind() -> None:
    worker = Worker(frames=50, size=5_000)
    async with relaying(worker) as (serving, app):

        async def visit(number: int) -> None:
            reader, writer = await serving.connect()
            writer.write(GET)
            await asyncio.sleep(number % 7 / 1000)
            if number % 3:
                reset(writer)
            else:
                await reader.read(number * 100)
                await close(writer)

        await asyncio.gather(*(visit(number) for number in range(100)))
        await until(lambda: not serving.server.server_state.connections)
        await until(lambda: not serving.server.server_state.tasks)
        await until(lambda: app.pool.open_connections == app.pool.idle_connections)
