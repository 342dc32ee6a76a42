"""The pool on real sockets of this machine, on both event loops."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.errors import ConnectFailed, ConnectionBroken, LegFault, LegTimeout, Retry
from proxy.upstream.pool import ConnectionPool

REQUEST = (b"POST /v1 HTTP/1.1\r\nhost: w\r\ncontent-length: 2\r\n\r\n", b"{}")
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            await reader.readexactly(len(b"".join(REQUEST)))
            writer.write(ANSWER)
    writer.close()


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@contextlib.asynccontextmanager
async def worker(handler: Handler = answering, **options: object) -> AsyncIterator[WorkerAddress]:
    scheme = "https://" if options.get("ssl") else ""
    served: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        try:
            await handler(reader, writer)
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)  # type: ignore[arg-type]
    async with server:
        yield parse_worker_address(f"{scheme}localhost:{server.sockets[0].getsockname()[1]}")
    if served:
        await asyncio.wait(served, timeout=5)
    await asyncio.sleep(0.01)  # for the loop to take leave of the transports


async def exchange(pool: ConnectionPool) -> bytes:
    connection = pool.take_idle() or await pool.connect().future
    connection.send(REQUEST)
    return (await connection.answer()).body


async def empty(pool: ConnectionPool) -> None:
    """Wait until no connection is left."""
    async with asyncio.timeout(5):
        while pool.open_connections:
            await asyncio.sleep(0.001)


async def test_exchanges_over_one_connection() -> None:
    async with worker() as address:
        pool = ConnectionPool(address)
        for _ in range(3):
            assert await exchange(pool) == b"{}"
            assert (pool.open_connections, pool.idle_connections) == (1, 1)
        await pool.close()
        await empty(pool)


@pytest.mark.parametrize("how", ["close", "reset", "ours"])
async def test_idle_connections_that_the_worker_ends_are_counted(how: str) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(b"".join(REQUEST)))
        writer.write(ANSWER)
        await asyncio.sleep(0.02)
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if how != "ours":
            writer.transport.abort()
        await reader.read()

    async with worker(once) as address:
        pool = ConnectionPool(address)
        assert await exchange(pool) == b"{}"
        assert pool.ended_by_worker == 0
        if how == "ours":
            await pool.close()
        await empty(pool)
        assert pool.ended_by_worker == (how != "ours")
        await pool.close()


async def test_tcp_options_are_set() -> None:
    async with worker() as address:
        pool = ConnectionPool(address)
        connection = await pool.connect().future
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
        await pool.close()
        await empty(pool)


async def test_unix_sockets(tmp_path: Path) -> None:
    server = await asyncio.start_unix_server(answering, tmp_path / "worker.sock")
    async with server:
        pool = ConnectionPool(parse_worker_address(f"unix:{tmp_path}/worker.sock"))
        assert await exchange(pool) == b"{}"
        assert await exchange(pool) == b"{}"
        await pool.close()
        await empty(pool)
    missing = ConnectionPool(parse_worker_address(f"unix:{tmp_path}/nobody.sock"))
    with pytest.raises(ConnectFailed):
        await exchange(missing)
    assert missing.open_connections == 0


async def test_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    pool = ConnectionPool(parse_worker_address(f"127.0.0.1:{port}"))
    with pytest.raises(ConnectFailed) as caught:
        await exchange(pool)
    assert str(port) not in caught.value.message
    assert pool.open_connections == 0


@pytest.mark.parametrize("host", ["a" * 64 + ".localhost", "a..localhost"])
async def test_a_name_that_cannot_even_be_asked_for(host: str) -> None:
    pool = ConnectionPool(parse_worker_address(f"{host}:8001"))
    with pytest.raises(ConnectFailed):
        await exchange(pool)
    assert pool.open_connections == 0


async def test_connect_timeout() -> None:
    """A full accept queue: Linux drops the SYN, as a dead host does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as sock:
        address = sock.getsockname()
        fill = [socket.socket() for _ in range(4)]
        for one in fill:
            one.setblocking(False)
            one.connect_ex(address)
        pool = ConnectionPool(parse_worker_address(f"127.0.0.1:{address[1]}"), connect_timeout=0.05)
        with pytest.raises(LegTimeout):
            await exchange(pool)
        assert pool.open_connections == 0
        for one in fill:
            one.close()


@pytest.mark.parametrize("handler", [closing, resetting])
async def test_a_worker_that_accepts_and_closes_leaves_nothing_behind(handler: Handler) -> None:
    async with worker(handler) as address:
        pool = ConnectionPool(address, max_connections=2)
        for _ in range(20):
            with pytest.raises((ConnectFailed, ConnectionBroken)):
                await exchange(pool)
        await empty(pool)


async def test_a_worker_that_closes_idle_connections() -> None:
    writers: list[asyncio.StreamWriter] = []

    async def remembering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await answering(reader, writer)

    async with worker(remembering) as address:
        pool = ConnectionPool(address)
        assert await exchange(pool) == b"{}"
        writers[0].close()
        await empty(pool)
        assert pool.idle_connections == 0
        assert await exchange(pool) == b"{}"
        await pool.close()
        await empty(pool)


async def test_an_aborted_exchange_is_seen_by_the_worker() -> None:
    seen = asyncio.get_running_loop().create_future()

    async def waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(b"".join(REQUEST)))
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
        seen.set_result(None)
        writer.close()

    async with worker(waiting) as address:
        pool = ConnectionPool(address)
        connection = await pool.connect().future
        number = connection.send(REQUEST)
        task = asyncio.create_task(connection.answer())
        await asyncio.sleep(0)
        connection.abort(number, LegTimeout("x"))
        with pytest.raises(LegTimeout):
            await task
        async with asyncio.timeout(5):
            await seen
        await empty(pool)


async def test_pauses_reach_the_worker() -> None:
    """Only as much arrives as the socket buffers hold while nobody asks for the body."""
    total = 32 * 1024 * 1024
    sent = 0

    async def pouring(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readexactly(len(b"".join(REQUEST)))
        with contextlib.suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
            while sent < total:
                writer.write(b"x" * 65536)
                sent += 65536
                await writer.drain()
            await reader.read()

    async with worker(pouring) as address:
        pool = ConnectionPool(address)
        connection = await pool.connect().future
        connection.send(REQUEST)
        await connection.head()
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.02)
        assert sent < total
        assert connection._held_size < 1024 * 1024
        assert len((await connection.rest()).body) == total
        await pool.close()
        await empty(pool)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command is not installed")
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


async def test_tls(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with worker(ssl=context) as address:
        distrustful = ConnectionPool(address)
        with pytest.raises(ConnectFailed):
            await exchange(distrustful)
        assert distrustful.open_connections == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        pool = ConnectionPool(address)
        assert await exchange(pool) == b"{}"
        assert await exchange(pool) == b"{}"
        connection = pool.take_idle()
        assert connection is not None
        assert connection._transport is not None
        assert connection._transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY
        )
        pool.give_back(connection)
        await pool.close()
        await empty(pool)


async def test_a_worker_that_speaks_no_tls() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    faults: list[tuple[Handler, type[LegFault]]] = [(plain, ConnectFailed), (silent, LegTimeout)]
    for handler, fault in faults:
        async with worker(handler) as address:
            address = parse_worker_address(f"https://{address.text}")
            pool = ConnectionPool(address, connect_timeout=0.2)
            with pytest.raises(fault):
                await exchange(pool)
            assert pool.open_connections == 0


async def test_a_large_request_of_which_the_worker_reads_nothing() -> None:
    async def unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.transport.abort()

    async with worker(unread, limit=1) as address:
        pool = ConnectionPool(address)
        connection = await pool.connect().future
        connection.send((REQUEST[0], b"x" * 50_000_000))
        with pytest.raises(ConnectionBroken) as caught:
            await connection.answer()
        await empty(pool)
        if type(asyncio.get_running_loop()).__module__.startswith(
            "uvloop"
        ):  # asyncio forgets what was not sent
            assert caught.value.retry is Retry.UNSENT
