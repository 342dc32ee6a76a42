"""A client that writes and reads bytes."""

import json
import re
import socket
import time
from typing import Any

from e2e_bodies import path_of

SECONDS = 10.0


def request(
    body: Any,
    *headers: str,
    path: str | None = None,
    method: str = "POST",
    version: str = "1.1",
    length: bool = True,
) -> bytes:
    """The bytes of one request; ``body`` is JSON, or bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path or path_of(body)} HTTP/{version}", "host: proxy", *headers]
    if length:
        lines.append(f"content-length: {len(data)}")
    return "\r\n".join([*lines, "", ""]).encode() + data


class RawClient:
    """One connection, as a context manager. Reads time out after `SECONDS`."""

    def __init__(self, port: int, *, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(SECONDS)
        self.socket.connect(("127.0.0.1", port))
        self.data = bytearray()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> bool:
        """Read once; False at the end of the connection."""
        piece = self.socket.recv(256 * 1024)
        self.data += piece
        return bool(piece)

    def read_until(self, mark: bytes) -> bytes:
        """Everything up to and with ``mark``."""
        while mark not in self.data:
            assert self.read(), f"the connection ended after {self.data!r}"
        return self._take(self.data.index(mark) + len(mark))

    def read_size(self, size: int) -> bytes:
        """Exactly so many bytes."""
        while len(self.data) < size:
            assert self.read(), f"the connection ended after {self.data!r}"
        return self._take(size)

    def read_to_end(self) -> bytes:
        """Everything up to the end of the connection."""
        while self.read():
            pass
        return self._take(len(self.data))

    def _take(self, size: int) -> bytes:
        found = bytes(self.data[:size])
        del self.data[:size]
        return found

    def read_answer(self) -> tuple[int, bytes, bytes]:
        """Status, head and body (without its framing) of one answer of length or in chunks."""
        head = self.read_until(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None:
            return status, head, self.read_size(int(length[1]))
        assert b"transfer-encoding: chunked" in head, head
        pieces = []
        while True:
            size = int(self.read_until(b"\r\n"), 16)
            piece = self.read_size(size + 2)
            assert piece.endswith(b"\r\n")
            pieces.append(piece[:-2])
            if not size:
                return status, head, b"".join(pieces)

    def is_closed(self, seconds: float = SECONDS) -> bool:
        """Whether the other side closes within the time, without another byte."""
        deadline = time.monotonic() + seconds
        self.socket.settimeout(seconds)
        try:
            ended = not self.socket.recv(1)
        except ConnectionError:
            ended = True
        except TimeoutError:
            ended = False
        return ended and time.monotonic() <= deadline + 0.5
