"""Our server on a real socket, with an application that the tests write."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec

from proxy.config.settings import ProxySettings, Settings
from proxy.downstream.limits import Limits
from proxy.downstream.protocol import protocol_class
from proxy.downstream.server import ProxyServer, server_config

Serve = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


class Application:
    """What the server needs of the proxy's application: the lifespan and a service that can be told to drain."""

    def __init__(self, serve: Serve) -> None:
        self.service = SimpleNamespace(draining=False, ready=True)
        self.stopped = False
        self._serve = serve

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.stopped = True
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await self._serve(scope, receive, send)


class Running(msgspec.Struct, frozen=True):
    """A server that runs, with what tests look at."""

    server: ProxyServer
    app: Any
    task: Any
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def stopped(self) -> None:
        async with asyncio.timeout(5):
            await self.task


@contextlib.asynccontextmanager
async def running(
    serve: Serve, *, limits: Limits | None = None, grace: float = 0.0, timeout: float = 5.0, **proxy: Any
) -> AsyncIterator[Running]:
    app = Application(serve)
    config = server_config(Settings(hostname="127.0.0.1", port=0, proxy=ProxySettings(**proxy)), app)  # type: ignore[arg-type]
    if limits is not None:
        config.http = protocol_class(limits)
    server = ProxyServer(config, app, grace=grace, timeout=timeout)  # type: ignore[arg-type]
    task = asyncio.create_task(server.serve())
    await server.wait_ready()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Running(server, app, task, port)
    finally:
        if not task.done():
            server.stop()
            server.stop()
        async with asyncio.timeout(5):
            await task


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens by itself."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
