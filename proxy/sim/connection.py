"""uvicorn's protocol with the raw access that faults need, and with counts."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from proxy.sim.faults import FaultBoard

EXTENSION = "sim.connection"  # key of `scope["extensions"]` under which an application finds its connection
CLOSE_SECONDS = 1.0  # how long a closing connection may keep unsent bytes

# Linger on, zero seconds: close() then sends RST instead of FIN (socket(7)).
LINGER_RESET = struct.pack("ii", 1, 0)


class ConnectionCounts:
    """Connections of one worker."""

    def __init__(self) -> None:
        self.total = 0
        self.open = 0
        self.max_open = 0


class SimProtocol(HttpToolsProtocol):
    """One connection; applications find it as ``scope["extensions"]["sim.connection"]``."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        board: FaultBoard,
        counts: ConnectionCounts,
        keep_alive_seconds: float,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.timeout_keep_alive = cast(int, keep_alive_seconds)  # the event loop takes fractions too
        self.board = board
        self.counts = counts
        self.answered = 0
        self.muted = False
        self.closed = asyncio.Event()
        self.on_close: Callable[[], object] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the parent
        """Count, then apply the faults of new connections."""
        super().connection_made(transport)
        self.counts.total += 1
        self.counts.open += 1
        self.counts.max_open = max(self.counts.max_open, self.counts.open)
        if self.board.faults:
            if self.board.take_kind("accept_reset"):
                self.reset()
            elif self.board.take_kind("accept_hang"):
                self.muted = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Count, and tell the running request."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self.counts.open -= 1
        self.closed.set()
        if self.on_close is not None:
            self.on_close()

    def data_received(self, data: bytes) -> None:
        """Parse, unless a fault of the connection says otherwise."""
        if self.muted or self.transport.is_closing():
            return
        if self.answered and self.board.faults and self._is_idle() and self.board.take_kind("reset_reused"):
            self.reset()
            return
        super().data_received(data)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def on_message_begin(self) -> None:
        """Hand the connection to the application."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: self}  # type: ignore[dict-item]  # ours is no dictionary

    def on_response_complete(self) -> None:
        """Count the answers."""
        self.answered += 1
        super().on_response_complete()

    def write_raw(self, data: bytes) -> None:
        """Send bytes past the ASGI server."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def reset(self) -> None:
        """End the connection with RST (over TCP), at once."""
        raw = self.transport.get_extra_info("socket")
        # The client may have been first, so that there is nothing left to reset.
        if raw is not None and raw.family != socket.AF_UNIX and raw.fileno() >= 0:
            # A duplicate reaches the socket's options under each event loop.
            with socket.socket(fileno=os.dup(raw.fileno())) as duplicate:
                duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
        self.transport.abort()

    async def close(self, *, with_reset: bool = False) -> None:
        """End the connection and wait until it is gone."""
        if with_reset:
            self.reset()
        else:
            self.transport.close()
        try:
            await asyncio.wait_for(self.closed.wait(), CLOSE_SECONDS)
        except TimeoutError:
            self.transport.abort()
            await self.closed.wait()

    def decorate_chunks(self, *, extension: bool, trailer: bool) -> None:
        """Let the running answer's chunks carry an extension, or a trailer after the last one."""
        self.cycle.transport = cast(asyncio.Transport, _ChunkDecorator(self.transport, extension, trailer))


class _ChunkDecorator:
    """Stands between the request cycle and its transport; uvicorn writes each chunk with one call."""

    def __init__(self, transport: asyncio.Transport, extension: bool, trailer: bool) -> None:
        self._transport = transport
        self._extension = b";sim=1" if extension else b""
        self._trailer = b"x-sim-trailer: yes\r\nx-sim-count: 2\r\n" if trailer else b""

    def write(self, data: bytes) -> None:
        if not data.startswith(b"HTTP/1.1 "):
            end = data.endswith(b"0\r\n\r\n")
            chunks = data[:-5] if end else data
            if chunks:
                size, _, rest = chunks.partition(b"\r\n")
                chunks = size + self._extension + b"\r\n" + rest
            data = chunks + (b"0" + self._extension + b"\r\n" + self._trailer + b"\r\n" if end else b"")
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
