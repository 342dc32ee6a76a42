"""A second listener in the same event loop, for operators. Its end comes with the application's, after the drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import uvicorn
from uvicorn.server import ServerState

from proxy.config.listen import ListenAddress
from proxy.downstream.limits import Limits
from proxy.downstream.protocol import RelayProtocol, protocol_class
from proxy.downstream.tls import tls_options

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from proxy.config.settings import ProxySettings

_MAX_BODY = 1024 * 1024
_logger = logging.getLogger("proxy.admin")


class AdminListener:
    """From `open` to `close`. With `tls_certfile` a TCP listener speaks TLS, like the public one.

    Args:
        app: the admin routes with their middlewares.
        address: where to listen.
        proxy: limits and TLS.
    """

    def __init__(self, app: ASGIApp, address: ListenAddress, proxy: ProxySettings) -> None:
        limits = Limits(
            max_header_bytes=proxy.max_header_bytes,
            # Weights may come in the body of a call to all workers.
            max_body_bytes=proxy.max_body_bytes if proxy.rl_control else _MAX_BODY,
            header_timeout=proxy.header_timeout,
            client_stall_timeout=proxy.client_stall_timeout,
        )
        self._address = address
        self._config = uvicorn.Config(
            app,
            http=protocol_class(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            **({} if address.unix_path is not None else tls_options(proxy)),
        )
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The TCP port, 0 for a Unix socket."""
        if self._server is None or self._address.unix_path is not None:
            return 0
        return int(self._server.sockets[0].getsockname()[1])

    async def open(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the address cannot be used.
        """
        config = self._config
        config.load()

        def make_protocol() -> asyncio.Protocol:
            # uvicorn types the class as any protocol, which takes no arguments.
            return config.http_protocol_class(  # type: ignore[call-arg]  # see above
                config=config, server_state=self._state, app_state={}
            )

        loop = asyncio.get_running_loop()
        path = self._address.unix_path
        if path is None:
            self._server = await loop.create_server(
                make_protocol, self._address.host, self._address.port, ssl=config.ssl
            )
            _logger.info("admin routes on %s port %d", self._address.host, self.port)
        else:
            _remove_stale_socket(path)
            with _private_mask():
                self._server = await loop.create_unix_server(make_protocol, path)
            _logger.info("admin routes on %s", path)

    async def close(self) -> None:
        """Stop listening and end the connections."""
        if self._server is None:
            return
        self._server.close()
        for connection in cast("list[RelayProtocol]", list(self._state.connections)):
            connection.shutdown()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in cast("list[RelayProtocol]", list(self._state.connections)):
            connection.transport.close()
        if self._address.unix_path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._address.unix_path)


def _remove_stale_socket(path: str) -> None:
    """A process that was killed leaves its socket behind; one that somebody listens on is not touched."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


@contextlib.contextmanager
def _private_mask() -> Iterator[None]:
    """Whoever may open the socket may stop the proxy: its owner alone."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
