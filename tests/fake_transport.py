"""A transport that keeps what is written and does what a test says. Strict where real ones are."""

import asyncio
from collections.abc import Iterable
from typing import Any

HIGH_WATER = 64 * 1024


class FakeTransport(asyncio.Transport):
    """Calls the protocol as an event loop would.

    Attributes:
        pieces: what was written, one entry per call.
        buffered: bytes that the peer has not taken; see `stall`.
        reading: not paused.
        aborted, eof_written: what it says.
    """

    def __init__(self, protocol: Any, extra: dict[str, Any] | None = None) -> None:
        super().__init__(extra or {"peername": ("127.0.0.1", 50000), "sockname": ("127.0.0.1", 8000)})
        self._protocol = protocol
        self._closing = False
        self._lost = False
        self._stalled = False
        self._write_paused = False
        self.pieces: list[bytes] = []
        self.buffered = 0
        self.reading = True
        self.aborted = False
        self.eof_written = False
        protocol.connection_made(self)

    # What a test does

    def receive(self, data: bytes) -> None:
        """The peer sends; nothing arrives while reading is paused or the connection is closing."""
        assert self.reading, "reading is paused"
        if data and not self._closing:
            self._protocol.data_received(data)

    def receive_eof(self) -> None:
        """The peer half-closes."""
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def lose(self, error: Exception | None = None) -> None:
        """The connection ends now."""
        if not self._lost:
            self._closing = self._lost = True
            self._protocol.connection_lost(error)

    def stall(self) -> None:
        """The peer takes nothing any more."""
        self._stalled = True

    def drain(self) -> None:
        """The peer takes everything."""
        self._stalled = False
        self.buffered = 0
        if self._write_paused:
            self._write_paused = False
            self._protocol.resume_writing()
        if self._closing and not self._lost:
            self._lose_soon()

    @property
    def written(self) -> bytes:
        return b"".join(self.pieces)

    def take(self) -> bytes:
        """What was written since the last call."""
        data, self.pieces = self.written, []
        return data

    # asyncio.Transport

    def write(self, data: bytes) -> None:  # type: ignore[override]
        # uvloop raises here.
        assert not self._lost, "write on a lost connection"
        assert not self.eof_written, "write after write_eof"
        if self.aborted or not data:
            return
        self.pieces.append(bytes(data))
        if self._stalled:
            self.buffered += len(data)
            if self.buffered > HIGH_WATER and not self._write_paused:
                self._write_paused = True
                self._protocol.pause_writing()

    def writelines(self, pieces: Iterable[Any]) -> None:
        self.write(b"".join(bytes(piece) for piece in pieces))

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert not self._lost
        self.eof_written = True

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self.buffered:
                self._lose_soon()

    def abort(self) -> None:
        self._closing = self.aborted = True
        self._lose_soon()

    def _lose_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.lose)
