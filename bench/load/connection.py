"""One client connection: sends a rendered request, reads until the answer is complete."""

import asyncio
import re
from collections.abc import Callable
from time import perf_counter

from bench.load.answer_check import AnswerCheck

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)
_END = b"0\r\n\r\n"


class ClientConnection(asyncio.Protocol):
    """Keeps its times of the last exchange: `sent`, `first` (first event or body byte) and `done`, in seconds.

    `on_done` is called once per exchange with the connection and what was wrong (None: nothing);
    `on_first` once when the first event came.
    """

    __slots__ = (
        "_chunked",
        "_head",
        "_missing",
        "_parts",
        "busy",
        "check",
        "done",
        "endless",
        "first",
        "on_done",
        "on_first",
        "reads",
        "sent",
        "transport",
    )

    def __init__(self, check: AnswerCheck | None) -> None:
        """Without `check` only the status is looked at. `endless`: the stream is never waited for."""
        self.check = check
        self.on_done: Callable[[ClientConnection, str | None], None] | None = None
        self.on_first: Callable[[ClientConnection], None] | None = None
        self.endless = False
        self.busy = False
        self.transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._head = b""
        self._missing = 0
        self._chunked = False
        self.sent = self.first = self.done = 0.0
        self.reads = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop gives a transport of its own class

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self.busy:
            self._finish(f"connection lost: {error!r}")

    def send(self, request: bytes) -> None:
        """Start an exchange; the last one must be over."""
        self._head = b""
        self._parts = []
        self.first = 0.0
        self.reads = 0
        self.busy = True
        self.sent = perf_counter()
        if self.transport is None:
            self._finish("connection was closed by the proxy")
            return
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self.busy:
            return
        self.reads += 1
        if not self._head:
            self._parts.append(data)
            data = b"".join(self._parts)
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head = data[: end + 2]
            self._parts = []
            data = data[end + 4 :]
            length = _LENGTH.search(self._head)
            self._chunked = length is None and _CHUNKED.search(self._head) is not None
            if length is None and not self._chunked:
                self._finish(f"no framing: {self._head[:200]!r}")
                return
            self._missing = int(length.group(1)) if length else 0
            if not data and (self._chunked or self._missing):
                return
        if not self.first and (b"data: " in data or self._parts or b"event-stream" not in self._head):
            self.first = perf_counter()
            if self.on_first is not None:
                self.on_first(self)
        if self.endless and self.first:
            return
        self._parts.append(data)
        if self._chunked:
            # The events hold no CR, so this end cannot appear inside the stream.
            tail = data if len(data) > 6 else b"".join(self._parts[-8:])
            if tail.endswith(_END) and (tail == _END or tail.endswith(b"\r\n" + _END)):
                self._complete()
        else:
            self._missing -= len(data)
            if self._missing <= 0:
                self._complete()

    def _complete(self) -> None:
        self.done = perf_counter()
        problem = None
        if self.check is not None:
            problem = self.check.problem(self._head, b"".join(self._parts), self._chunked)
        elif not self._head.startswith(b"HTTP/1.1 200"):
            problem = f"{self._head[:30]!r}"
        self._parts = []
        self._finish(problem)

    def _finish(self, problem: str | None) -> None:
        self.busy = False
        if self.on_done is not None:
            self.on_done(self, problem)


async def connect(port: int, check: AnswerCheck | None) -> ClientConnection:
    """A connected client to a port on loopback."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: ClientConnection(check), "127.0.0.1", port)
    return connection


async def exchange(connection: ClientConnection, request: bytes) -> str | None:
    """One request and its answer; what was wrong, or None."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[str | None] = loop.create_future()
    connection.on_done = lambda _, problem: over.set_result(problem)
    connection.send(request)
    return await over
