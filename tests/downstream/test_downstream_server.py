"""The end of a server in its three phases, with short times."""

import asyncio
import threading
from typing import Any

import pytest
import uvloop
from fake_downstream import answer, parse
from server_fakes import Application, close, running, until

from proxy.config.settings import ProxySettings, Settings
from proxy.downstream.limits import Limits
from proxy.downstream.protocol import RelayProtocol
from proxy.downstream.server import ProxyServer, server_config

GET = b"GET / HTTP/1.1\r\nhost: p\r\n\r\n"


async def at_once(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await answer(send, b"ok")


class Gate:
    """Requests wait at it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.cancelled = 0
        self.open = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.waiting += 1
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await answer(send, b"ok")


async def test_the_settings_reach_the_protocol() -> None:
    proxy = ProxySettings(max_body_bytes=11, max_header_bytes=12, header_timeout=13, client_stall_timeout=14)
    settings = Settings(hostname="127.0.0.1", port=81, server_keep_alive_timeout=15, proxy=proxy)
    config = server_config(settings, Application(at_once))  # type: ignore[arg-type]
    config.load()
    protocol: Any = config.http_protocol_class
    assert issubclass(protocol, RelayProtocol)
    assert protocol.limits == Limits(
        max_body_bytes=11, max_header_bytes=12, header_timeout=13, client_stall_timeout=14
    )
    assert (config.host, config.port, config.timeout_keep_alive) == ("127.0.0.1", 81, 15)
    assert config.server_header is False
    assert RelayProtocol.limits == Limits()


async def test_grace_then_the_end() -> None:
    async with running(at_once, grace=0.3) as serving:
        reader, writer = await serving.connect()
        idle_reader, idle_writer = await serving.connect()
        writer.write(GET)
        (before,) = parse(await reader.readuntil(b"ok"))
        assert "connection" not in before.headers
        serving.server.stop()
        await asyncio.sleep(0)
        assert serving.server.draining
        await until(lambda: serving.app.service.draining)
        # Still served, and the connection ends with the answer; idle ones stay; new ones are accepted.
        writer.write(GET)
        (during,) = parse(await reader.read())
        assert (during.status, during.headers["connection"]) == (200, "close")
        new_reader, new_writer = await serving.connect()
        new_writer.write(GET)
        assert parse(await new_reader.read())[0].headers["connection"] == "close"
        assert not idle_reader.at_eof()
        assert not serving.task.done()
        await serving.stopped()
        assert await idle_reader.read() == b""
        assert serving.app.stopped
        with pytest.raises(ConnectionRefusedError):
            await serving.connect()
        for each in (writer, idle_writer, new_writer):
            await close(each)


async def test_running_requests_finish() -> None:
    gate = Gate()
    async with running(gate) as serving:
        reader, writer = await serving.connect()
        writer.write(GET)
        await until(lambda: gate.waiting == 1)
        serving.server.stop()
        await until(lambda: not serving.server.servers[0].sockets)
        with pytest.raises(ConnectionRefusedError):
            await serving.connect()
        assert not serving.task.done()
        assert not serving.app.stopped
        gate.open.set()
        (response,) = parse(await reader.read())
        assert (response.status, response.headers["connection"]) == (200, "close")
        await serving.stopped()
        assert serving.app.stopped
        await close(writer)


async def test_a_request_that_is_arriving_finishes() -> None:
    async with running(at_once) as serving:
        reader, writer = await serving.connect()
        writer.write(b"POST / HTTP/1.1\r\nhost: p\r\ncontent-length: 4\r\n\r\n12")
        await until(lambda: any(connection.receiving for connection in serving.server._connections))
        serving.server.stop()
        await until(lambda: serving.server.should_exit)
        await asyncio.sleep(0.15)
        assert not serving.task.done()
        writer.write(b"34")
        (response,) = parse(await reader.read())
        assert response.status == 200
        await serving.stopped()
        await close(writer)


async def test_what_does_not_finish_in_time_is_cut_off() -> None:
    gate = Gate()
    async with running(gate, timeout=0.1) as serving:
        reader, writer = await serving.connect()
        writer.write(GET)
        await until(lambda: gate.waiting == 1)
        serving.server.stop()
        (response,) = parse(await reader.read())
        assert response.status == 503
        assert gate.cancelled == 1
        await serving.stopped()
        await close(writer)


async def test_an_upload_that_does_not_finish_in_time_is_cut_off() -> None:
    async with running(at_once, timeout=0.1) as serving:
        reader, writer = await serving.connect()
        writer.write(b"POST / HTTP/1.1\r\nhost: p\r\ncontent-length: 4\r\n\r\n12")
        await until(lambda: any(connection.receiving for connection in serving.server._connections))
        serving.server.stop()
        await serving.stopped()
        assert await reader.read() == b""
        await close(writer)


@pytest.mark.parametrize("phase", ["grace", "finish"])
async def test_a_second_signal_hurries(phase: str) -> None:
    gate = Gate()
    async with running(gate, grace=60 if phase == "grace" else 0, timeout=60) as serving:
        reader, writer = await serving.connect()
        writer.write(GET)
        await until(lambda: gate.waiting == 1)
        serving.server.stop()
        if phase == "finish":
            await until(lambda: serving.server.should_exit)
            await asyncio.sleep(0.15)
        serving.server.stop()
        await serving.stopped()
        assert gate.cancelled == 1
        assert parse(await reader.read())[0].status == 503
        await close(writer)


async def test_a_complete_answer_that_is_not_yet_taken_is_not_lost() -> None:
    size = 20_000_000

    async def large(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await answer(send, b"x" * size)

    async with running(large) as serving:
        reader, writer = await serving.connect()
        writer.write(GET)
        await until(lambda: serving.server.server_state.total_requests == 1)
        serving.server.stop()
        await asyncio.sleep(0.3)
        assert not serving.task.done()
        assert len(parse(await reader.read())[0].body) == size
        await serving.stopped()
        await close(writer)


async def test_a_client_that_never_reads_does_not_keep_the_server_alive() -> None:
    async def large(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await answer(send, b"x" * 20_000_000)

    async with running(large, limits=Limits(close_timeout=0.2)) as serving:
        _, writer = await serving.connect()
        writer.write(GET)
        await until(lambda: serving.server.server_state.total_requests == 1)
        serving.server.stop()
        await serving.stopped()
        await close(writer)


async def test_other_servers_in_the_process_are_not_touched() -> None:
    async with running(at_once) as other, running(at_once, grace=0.2) as serving:
        serving.server.stop()
        await until(lambda: serving.server.draining)
        reader, writer = await other.connect()
        writer.write(GET)
        assert "connection" not in parse(await reader.readuntil(b"ok"))[0].headers
        await serving.stopped()
        await close(writer)


def test_in_a_thread_signals_are_the_main_programs() -> None:
    problems: list[BaseException] = []

    async def serve() -> None:
        async with running(at_once) as serving:
            serving.server.stop()
            await serving.stopped()

    def run() -> None:
        try:
            uvloop.run(serve())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert problems == []


async def test_stopped_before_the_application_has_a_service() -> None:
    app = Application(at_once)
    app.service = None  # type: ignore[assignment]
    config = server_config(Settings(hostname="127.0.0.1", port=0), app)  # type: ignore[arg-type]
    server = ProxyServer(config, app, grace=0, timeout=1)  # type: ignore[arg-type]
    task = asyncio.create_task(server.serve())
    await asyncio.sleep(0)
    server.drain()
    server.drain()
    async with asyncio.timeout(5):
        await task
