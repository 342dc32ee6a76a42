"""uvicorn's server with our own signals and drain.

uvicorn closes listeners and idle connections at once and exits with 143 after SIGTERM. A load balancer needs some
seconds to learn that this process is leaving, so on SIGTERM or SIGINT:

1. readiness says no at once, and new requests are still accepted for `drain_grace`, their answers with
   `connection: close` ending the connections one by one;
2. then the listeners and idle connections close, and running answers finish within `drain_timeout`;
3. what still runs then is cut off; the process exits with 0.

A second signal skips to step 3.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, cast

import uvicorn

from proxy.downstream.limits import Limits
from proxy.downstream.protocol import RelayProtocol, protocol_class
from proxy.downstream.tls import tls_options

if TYPE_CHECKING:
    from proxy.app import Application
    from proxy.config.settings import Settings

# Thousands of clients connect at once when a proxy restarts; the kernel caps this at net.core.somaxconn.
_BACKLOG = 4096
_LOOK_AGAIN = 0.02
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_logger = logging.getLogger("proxy.server")


def server_config(
    settings: Settings, app: Application, observe_gap: Callable[[float], None] | None = None
) -> uvicorn.Config:
    """uvicorn's configuration for these settings; for `observe_gap` see `protocol_class`."""
    proxy = settings.proxy
    limits = Limits(
        max_header_bytes=proxy.max_header_bytes,
        max_body_bytes=proxy.max_body_bytes,
        header_timeout=proxy.header_timeout,
        client_stall_timeout=proxy.client_stall_timeout,
        coalesce_seconds=proxy.stream_coalesce_ms / 1000,
    )
    return uvicorn.Config(
        app,
        host=settings.hostname,
        port=settings.port,
        loop="uvloop",
        http=protocol_class(limits, observe_gap),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on the client's address
        timeout_keep_alive=settings.server_keep_alive_timeout,
        root_path="",  # the router deals with it: some ingresses strip the prefix and some do not
        backlog=_BACKLOG,
        **tls_options(proxy),
    )


class ProxyServer(uvicorn.Server):
    """See the module's docstring.

    Args:
        config: from `server_config`.
        app: told that it is draining.
        grace, timeout: `drain_grace` and `drain_timeout`, seconds.
    """

    def __init__(self, config: uvicorn.Config, app: Application, *, grace: float, timeout: float) -> None:
        super().__init__(config)
        self._app = app
        self._grace = grace
        self._timeout = timeout
        self._hurry = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Called by uvicorn around its life; the parent's version raises the signal again at the end."""
        loop = asyncio.get_running_loop()
        try:
            for number in _SIGNALS:
                loop.add_signal_handler(number, self._signalled)
        except (ValueError, RuntimeError):  # not the main thread: the embedding program has its own
            yield
            return
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if self._draining is None:
            self.drain()
        else:
            self.hurry()

    async def wait_ready(self) -> None:
        """Return when the server listens and the application could serve a request (looks every 20 ms)."""
        while not self.started or self._app.service is None or not self._app.service.ready:  # noqa: ASYNC110 - a start-up
            await asyncio.sleep(0.02)

    @property
    def draining(self) -> bool:
        """Whether the end has begun."""
        return self._draining is not None

    def stop(self) -> None:
        """As if a signal had come."""
        self._signalled()

    def drain(self) -> None:
        """Begin to end; does nothing the second time."""
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    def hurry(self) -> None:
        """Drain without waiting any longer."""
        self.drain()
        _logger.warning("in a hurry: cutting off what still runs")
        self._hurry.set()

    async def _drain(self) -> None:
        _logger.info("draining: not ready from now on, accepting for %g s more", self._grace)
        if self._app.service is not None:
            self._app.service.draining = True
        RelayProtocol.draining.add(self.server_state)
        await self._hurried(self._grace)
        self.should_exit = True  # the main loop looks every 0.1 s and calls `shutdown`

    async def _hurried(self, seconds: float) -> bool:
        """Wait; True when a second signal has come."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), seconds)
        return self._hurry.is_set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn when `should_exit` is set: steps 2 and 3."""
        for server in self.servers:
            server.close()
        for sock in sockets or ():
            sock.close()
        for connection in self._connections:
            connection.shutdown()
        if not await self._finished():
            tasks = list(self.server_state.tasks)
            _logger.warning("cutting off %d running requests", len(tasks))
            for connection in self._connections:
                connection.cut_off()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._flushed()
        await self.lifespan.shutdown()
        RelayProtocol.draining.discard(self.server_state)
        _logger.info("stopped")

    async def _finished(self) -> bool:
        """Wait until no request runs or arrives; False when the time is up or a second signal has come."""
        hurry = asyncio.ensure_future(self._hurry.wait())
        deadline = asyncio.get_running_loop().time() + self._timeout
        try:
            while True:
                tasks = set(self.server_state.tasks)
                receiving = any(connection.receiving for connection in self._connections)
                if not tasks and not receiving:
                    return True
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0 or self._hurry.is_set():
                    return False
                if receiving:
                    left = min(left, _LOOK_AGAIN)
                await asyncio.wait({hurry, *tasks}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()

    async def _flushed(self) -> None:
        """Close what is left and wait until clients have taken what was written, for the close time-out at most."""
        left = 0.0
        for connection in self._connections:
            connection.close()
            left = connection.limits.close_timeout
        while self._connections and left > 0:
            await asyncio.sleep(_LOOK_AGAIN)  # even in a hurry: what the kernel takes at once is not lost
            left = 0 if self._hurry.is_set() else left - _LOOK_AGAIN
        for connection in self._connections:
            connection.transport.abort()

    @property
    def _connections(self) -> list[RelayProtocol]:
        return cast("list[RelayProtocol]", list(self.server_state.connections))
