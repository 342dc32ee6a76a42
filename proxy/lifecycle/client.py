"""The client of a request: told the answer, watched for leaving.

Under our own server the extension `disagg.relay` does all of it without a task or a queue (`RelayClient`); under any
other ASGI server the same interface works through `receive` and `send` (`PlainClient`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from proxy.errors import ClientGone, ProxyError
from proxy.wire.late_answer import as_events
from proxy.wire.sse import KEEP_ALIVE, Tail

if TYPE_CHECKING:
    from starlette.types import Receive, Send

    from proxy.downstream.cycle import RequestCycle
    from proxy.downstream.sink import RelaySink
    from proxy.upstream.connection import Sink, WorkerConnection

Headers = list[tuple[bytes, bytes]]
Through = Callable[["Sink"], "Sink"]

EXTENSION = "disagg.relay"
# As much as a transport holds before it asks for a pause (asyncio's default high-water mark).
_HIGH_WATER = 64 * 1024


class Relayed(NamedTuple):
    """How the relay of a worker's answer went.

    Attributes:
        error: what ended it early, or None when the answer is complete.
        size: bytes of the body.
        first_byte_at: `perf_counter` at the first byte, seconds; 0 when there was none.
    """

    error: ProxyError | None
    size: int
    first_byte_at: float


class Client(Protocol):
    """See the module's docstring.

    Attributes:
        gone: the client has closed its connection.
        status: of the answer that was started, or 0.
        begun: `comment` has started the answer: its status and headers are settled.
    """

    status: int
    begun: bool

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        ...

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` as soon as the client leaves (at once if it has left)."""
        ...

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer; `headers` are without content-length. In an event stream that was begun it becomes
        events.

        Raises:
            ClientGone: nobody is there to take it.
        """
        ...

    async def relay(
        self, status: int, headers: Headers, source: WorkerConnection, through: Through | None = None
    ) -> Relayed:
        """Send a worker's answer, of which the head has been read, as it comes; returns at its end.

        Args:
            status, headers: of the answer.
            source: where it comes from.
            through: makes the sink that takes the answer on its way to the client's own, to change it.
        """
        ...

    def comment(self, headers: Headers) -> bool:
        """Send a comment of the event stream before its first byte; False when it is too late for that.

        Args:
            headers: of the answer, a 200, which is begun if it has not been.
        """
        ...

    @property
    def between_events(self) -> bool:
        """After a relay that ended early: whether an error event may follow without corrupting an event."""
        ...

    async def break_off(self, last: bytes | None) -> None:
        """After a relay that ended early: end the answer with `last`, or without the end of the message if None."""
        ...

    def close(self) -> None:
        """The request is over; stop watching."""
        ...


def _content_type(headers: Headers) -> bytes:
    return next((value for name, value in headers if name == b"content-type"), b"")


class RelayClient:
    """A client on our own server."""

    __slots__ = ("_cycle", "_sink", "begun", "status")

    def __init__(self, cycle: RequestCycle) -> None:
        self._cycle = cycle
        self._sink: RelaySink | None = None
        self.status = 0
        self.begun = False

    @property
    def gone(self) -> bool:
        """See `Client`."""
        return self._cycle.disconnected

    def watch(self, callback: Callable[[], None]) -> None:
        """See `Client`."""
        self._cycle.watch(callback)

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """See `Client`."""
        if self._cycle.disconnected:
            raise ClientGone("the client left")
        if self.begun:
            self._cycle.add(as_events(status, _content_type(headers), body), last=True)
            return
        self.status = status
        self._cycle.respond(status, headers, body)

    async def relay(
        self, status: int, headers: Headers, source: WorkerConnection, through: Through | None = None
    ) -> Relayed:
        """See `Client`."""
        self.status = self.status or status
        self._sink = sink = self._cycle.relay(status, headers, source)
        source.relay(sink if through is None else through(sink))
        if not sink.done.done():
            sink.flush_head()
        error = await sink.done
        return Relayed(error, sink.bytes_relayed, sink.first_byte_at)

    def comment(self, headers: Headers) -> bool:
        """See `Client`."""
        cycle = self._cycle
        if self._sink is not None:
            return self._sink.comment(KEEP_ALIVE)
        if cycle.disconnected or cycle.response_complete:
            return False
        if not self.begun:
            self.begun = True
            self.status = 200
            cycle.begin(200, headers)
        cycle.add(KEEP_ALIVE)
        return True

    @property
    def between_events(self) -> bool:
        """See `Client`."""
        return self._sink is None or self._sink.between_events

    async def break_off(self, last: bytes | None) -> None:
        """See `Client`."""
        if self._sink is None:
            self._cycle.add(last or b"", last=True)
        elif last is None:
            self._sink.abort()
        else:
            self._sink.close(last)

    def close(self) -> None:
        """See `Client`."""
        self._cycle.watch(None)


class PlainClient:
    """A client on any ASGI server."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._listener: asyncio.Task[None] | None = None
        self._callback: Callable[[], None] | None = None
        self._tail = Tail()
        self._comment: asyncio.Task[None] | None = None
        self._relaying: asyncio.Timeout | None = None
        self._answering = False
        self.gone = False
        self.status = 0
        self.begun = False

    def watch(self, callback: Callable[[], None]) -> None:
        """See `Client`."""
        if self.gone:
            callback()
            return
        self._callback = callback
        if self._listener is None:
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left()

    def _left(self) -> None:
        self.gone = True
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()
        self._give_up()

    def _give_up(self) -> None:
        """End a relay although `send` still waits for the client: no server promises to end that by itself."""
        relaying, self._relaying = self._relaying, None
        if relaying is not None:
            relaying.reschedule(0.0)

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """See `Client`."""
        try:
            await self._begin_answer()
            if self.begun:
                body = as_events(status, _content_type(headers), body)
            else:
                self.status = status
                headers.append((b"content-length", b"%d" % len(body)))
                await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        except OSError:
            self._left()
            raise ClientGone("the client left") from None

    async def relay(
        self, status: int, headers: Headers, source: WorkerConnection, through: Through | None = None
    ) -> Relayed:
        """See `Client`."""
        sink = _PieceQueue(source, self._give_up)
        source.relay(sink if through is None else through(sink))
        try:
            async with asyncio.timeout(None) as self._relaying:
                await self._send_all(status, headers, sink)
        except OSError:
            # ASGI spec 2.4: send raises when the client has gone. `_give_up` raises a `TimeoutError`, which is one too.
            if not isinstance(sink.error, ClientGone):
                self._left()
                sink.error = ClientGone("the client left")
        return Relayed(sink.error, sink.size, sink.first_byte_at)

    async def _send_all(self, status: int, headers: Headers, sink: _PieceQueue) -> None:
        try:
            if not self.begun:
                self.begun = True
                self.status = status
                await self._send({"type": "http.response.start", "status": status, "headers": headers})
            async for piece in sink:
                if not self._answering:
                    await self._begin_answer()
                self._tail.saw(piece)
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            await self._begin_answer()
            if sink.error is None:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._relaying = None

    def comment(self, headers: Headers) -> bool:
        """See `Client`."""
        if self.gone or self._answering:
            return False
        if self._comment is None or self._comment.done():
            self._comment = asyncio.get_running_loop().create_task(self._send_comment(headers))
        return True

    async def _send_comment(self, headers: Headers) -> None:
        if self._answering:
            return
        try:
            if not self.begun:
                self.begun = True
                self.status = 200
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
        except OSError:
            self._left()

    async def _begin_answer(self) -> None:
        """No comments from now on."""
        self._answering = True
        if self._comment is not None:
            await self._comment

    @property
    def between_events(self) -> bool:
        """See `Client`."""
        return self._tail.between_events

    async def break_off(self, last: bytes | None) -> None:
        """See `Client`. ASGI has no abort: an answer that is never completed makes the server close the connection."""
        if last is not None:
            try:
                await self._begin_answer()
                await self._send({"type": "http.response.body", "body": last, "more_body": False})
            except OSError:
                self._left()

    def close(self) -> None:
        """See `Client`."""
        self._callback = None
        for task in (self._listener, self._comment):
            if task is not None:
                task.cancel()


class _PieceQueue:
    """A sink for a consumer that awaits each piece; pauses the worker when too much waits.

    Args:
        source: where the pieces come from.
        give_up: called when the consumer is not to wait for its client any more.

    Attributes:
        error: what ended the answer early.
        size, first_byte_at: of what the consumer has got; see `Relayed`.
    """

    def __init__(self, source: WorkerConnection, give_up: Callable[[], None]) -> None:
        self.framed = False
        self._give_up = give_up
        self.error: ProxyError | None = None
        self.size = 0
        self.first_byte_at = 0.0
        self._source = source
        self._pieces: list[bytes] = []
        self._waiting = 0  # bytes of them
        self._ended = False
        self._wake: asyncio.Event = asyncio.Event()

    def write(self, data: bytes) -> None:
        self._pieces.append(data)
        self._waiting += len(data)
        if self._waiting > _HIGH_WATER:
            self._source.pause()
        self._wake.set()

    def end(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)
        self._ended = True
        self._wake.set()

    def broken(self, error: ProxyError) -> None:
        self.error = error
        self._ended = True
        self._wake.set()
        if isinstance(error, ClientGone):
            self._give_up()

    def __aiter__(self) -> _PieceQueue:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        data = b"".join(self._pieces)
        self._pieces = []
        self._waiting = 0
        self.size += len(data)
        self.first_byte_at = self.first_byte_at or perf_counter()
        if not self._ended:
            self._source.resume()
        return data
