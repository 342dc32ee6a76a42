"""A worker's listening socket, which can be closed and opened again at the same address."""

import asyncio
import os
import socket
from collections.abc import Callable

BACKLOG = 2048  # uvicorn's default


class Listener:
    """Listens on ``host:port`` or on a Unix socket path.

    While the listener is closed, a second socket that is bound but does not listen keeps the port: connections are
    refused, and nobody else gets it.
    """

    def __init__(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, path: str | None
    ) -> None:
        self._factory = factory
        self._host = host
        self._path = path
        self._server: asyncio.AbstractServer | None = None
        self._holder: socket.socket | None = None
        self.port = port
        if path is None:
            self._holder = _bound(host, port)
            self.port = self._holder.getsockname()[1]

    @property
    def address(self) -> str:
        """``host:port``, or ``unix:/path``."""
        if self._path is not None:
            return f"unix:{self._path}"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self.port}"

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted."""
        return self._server is not None

    async def open(self) -> None:
        """Accept connections."""
        if self._server is not None:
            return
        loop = asyncio.get_running_loop()
        if self._path is not None:
            self._server = await loop.create_unix_server(self._factory, self._path, backlog=BACKLOG)
            return
        self._server = await loop.create_server(
            self._factory, sock=_bound(self._host, self.port), backlog=BACKLOG
        )

    def close(self) -> None:
        """Refuse connections."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if self._path is not None and os.path.exists(self._path):
            os.unlink(self._path)

    def release(self) -> None:
        """Close for good."""
        self.close()
        if self._holder is not None:
            self._holder.close()
            self._holder = None


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Linux lets two sockets with this option share a port as long as only one of them listens.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound
