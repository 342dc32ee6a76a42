"""HTTP/1.1 requests out of bytes, for a server that trusts its peer to be a correct client."""

import re

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect:[ \t]*100-continue", re.IGNORECASE)


def dechunk(data: bytes, start: int = 0) -> tuple[bytes, int] | None:
    """Body of a chunked message and where it ends in `data`; None while it is incomplete.

    Trailers are not supported: no proxy under test sends any.
    """
    parts: list[bytes] = []
    position = start
    while True:
        line_end = data.find(b"\r\n", position)
        if line_end < 0:
            return None
        size = int(data[position:line_end].split(b";")[0], 16)
        body = line_end + 2
        position = body + size + 2
        if len(data) < position:
            return None
        if size == 0:
            return b"".join(parts), position
        parts.append(data[body : body + size])


class RequestReader:
    """Cuts a connection's bytes into requests; `feed` returns (head, body) pairs that are complete."""

    __slots__ = ("_chunked", "_head", "_missing", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._head: bytes | None = None
        self._missing = 0
        self._chunked = False

    @property
    def wants_continue(self) -> bool:
        """A head with `Expect: 100-continue` was read and its body has not come yet."""
        return self._head is not None and not self._parts and _EXPECT.search(self._head) is not None

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        complete: list[tuple[bytes, bytes]] = []
        while True:
            if self._head is None:
                if self._parts:
                    data = b"".join((*self._parts, data))
                    self._parts.clear()
                end = data.find(b"\r\n\r\n")
                if end < 0:
                    if data:
                        self._parts.append(data)
                    return complete
                self._head = data[:end]
                data = data[end + 4 :]
                length = _LENGTH.search(self._head)
                self._missing = int(length.group(1)) if length else 0
                self._chunked = length is None and _CHUNKED.search(self._head) is not None
            if self._chunked:
                data = b"".join((*self._parts, data))
                self._parts.clear()
                found = dechunk(data) if data.endswith(b"0\r\n\r\n") else None
                if found is None:
                    self._parts.append(data)
                    return complete
                complete.append((self._head, found[0]))
                data = data[found[1] :]
            elif len(data) < self._missing:
                if data:
                    self._parts.append(data)
                self._missing -= len(data)
                return complete
            else:
                rest = data[self._missing :]
                self._parts.append(data[: self._missing] if rest else data)
                complete.append((self._head, b"".join(self._parts)))
                self._parts.clear()
                data = rest
            self._head = None
            if not data:
                return complete
