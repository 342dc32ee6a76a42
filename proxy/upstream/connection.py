"""One connection to a worker and the exchange (one request, one answer) that is running on it.

Rules, in the order in which they bite:

1. At most one exchange at a time. Bytes on an idle connection, or behind the end of an answer, close it: they
   cannot belong to anything that was asked (httptools alone would take them for an answer).
2. 1xx answers are skipped; they complete nothing.
3. An answer is either collected (`answer()`) or its head is awaited first (`head()`) and its body is then sent on
   to a sink (`relay()`) or collected (`rest()`). Until that is decided, body bytes wait unread and the socket is
   paused beyond `_HOLD_LIMIT`.
4. With a sink, `data_received` hands each piece on in the same call: no task wakes, nothing is queued.
5. The connection returns to its pool only after a complete answer of known length to a request that was written
   completely, and if neither side asked to close. Everything else closes it.
6. `abort()` ends an exchange from outside (client gone, deadline): the connection is closed, whoever waits gets
   the error. The worker notices the closed connection and frees what it held. Exchanges are numbered, so that a
   late abort cannot hit the next exchange on the same connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, cast

from proxy.errors import BrokenAnswer, ConnectionBroken, ProxyError, Retry
from proxy.upstream.answer import Answer as Answer
from proxy.upstream.answer import Sink as Sink
from proxy.upstream.head import ResponseHead, read_head
from proxy.wire.chunks import BodyReader
from proxy.wire.errors import BrokenFraming
from proxy.wire.members import JSONBytes

if TYPE_CHECKING:
    from proxy.upstream.pool import ConnectionPool

_START_OF_HEAD = b"HTTP/1."
_END_OF_HEAD = b"\r\n\r\n"
# 80 KiB of them can be the metrics for which a client has asked (`x-trtllm-return-metrics`).
_MAX_HEAD = 128 * 1024
_HOLD_LIMIT = 256 * 1024


class WorkerConnection(asyncio.Protocol):
    """See the module's docstring.

    Attributes:
        reused: the connection has been idle before the running exchange; the worker may have closed it meanwhile.
        idle_since: loop time at which it became idle, seconds.
        last_read: loop time of the last bytes, seconds; set only while an answer is relayed.
        reading_paused, paused_since: the consumer is slow (since that loop time, seconds); the worker is not to blame
            for silence.
    """

    __slots__ = (
        "_busy",
        "_clean_end",
        "_collect",
        "_ended",
        "_error",
        "_exchange",
        "_held",
        "_held_size",
        "_hold_paused",
        "_loop",
        "_pieces",
        "_pool",
        "_reader",
        "_received",
        "_response",
        "_sink",
        "_start",
        "_transport",
        "_unsent",
        "_waiter",
        "idle_since",
        "last_read",
        "paused_since",
        "reading_paused",
        "reused",
    )

    def __init__(self, pool: ConnectionPool, loop: asyncio.AbstractEventLoop) -> None:
        # For the connection
        self._pool = pool
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self.reused = False
        self.idle_since = 0.0
        self.last_read = 0.0
        self.reading_paused = False
        self.paused_since = 0.0
        # For the exchange
        self._busy = False
        self._exchange = 0
        self._waiter: asyncio.Future[ResponseHead | Answer] | None
        self._reset()

    def _reset(self) -> None:
        self._received = False
        self._unsent = False  # a good part of the request has not been written
        self._start = b""  # the beginning of a head
        self._response: ResponseHead | None = None
        self._reader: BodyReader | None = None
        self._held: list[bytes] = []
        self._held_size = 0
        self._pieces: list[bytes] = []
        self._hold_paused = False
        self._collect = False
        self._ended = False  # the worker closed before anyone asked for the body
        self._clean_end = True
        self._error: ProxyError | None = None  # the exchange failed while nobody waited
        self._sink: Sink | None = None
        # The task of the exchange before may not have seen its answer yet: its future must not serve this one.
        self._waiter = None

    # The exchange

    def send(self, pieces: Iterable[JSONBytes]) -> int:
        """Start an exchange: write a request, head and body, without joining its pieces.

        Only for a `usable` connection. Returns the exchange's number, for `abort`.
        """
        self._reset()
        self._exchange += 1
        if self._transport is not None:
            self._busy = True
            self._transport.writelines(pieces)
        return self._exchange

    def answer(self) -> Awaitable[Answer]:
        """Wait for the complete answer.

        Raises:
            ConnectionBroken, BrokenAnswer, or the error given to `abort`.
        """
        self._collect = True
        return self._wait()  # type: ignore[return-value]  # what is collected is an Answer

    async def head(self) -> ResponseHead:
        """Wait for the head of the answer; `rest` or `relay` must follow.

        Raises:
            ConnectionBroken, BrokenAnswer, or the error given to `abort`.
        """
        return self._response or await self._wait()  # type: ignore[return-value]  # nothing is collected

    def rest(self) -> Awaitable[Answer]:
        """Collect the body behind a head that was awaited. Raises as `answer` does."""
        self._collect = True
        if self._busy:
            self._waiter = self._loop.create_future()
            self._release_held()
        return self._wait()  # type: ignore[return-value]  # what is collected is an Answer

    def relay(self, sink: Sink) -> None:
        """Send the body behind a head that was awaited to `sink`, which hears of its end and of errors."""
        if not self._busy:
            sink.broken(self._failure())
            return
        self._sink = sink
        if self._reader is not None:
            self._reader.framed = sink.framed
        self.last_read = self._loop.time()
        self._release_held()

    def abort(self, exchange: int, error: ProxyError) -> None:
        """End an exchange with `error` and close the connection; does nothing when it has ended already."""
        if self._busy and exchange == self._exchange:
            self._fail(error)

    def pause(self) -> None:
        """Stop reading: the consumer cannot keep up."""
        if not self.reading_paused and self._transport is not None:
            self.reading_paused = True
            self.paused_since = self._loop.time()
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self.reading_paused and self._transport is not None:
            self.reading_paused = False
            self.last_read = self._loop.time()
            if not self._hold_paused:
                self._transport.resume_reading()

    def hold(self) -> None:
        """Leave what comes in the socket until `release`, beside any pause: the consumer wants it all together."""
        if not self._hold_paused and self._transport is not None and not self._transport.is_closing():
            self._hold_paused = True
            self._transport.pause_reading()

    def release(self) -> None:
        """End a `hold`."""
        if self._hold_paused and self._transport is not None and not self._transport.is_closing():
            self._hold_paused = False
            if not self.reading_paused:
                self._transport.resume_reading()

    def close(self) -> None:
        """Close an idle connection."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def usable(self) -> bool:
        """Open and not running an exchange."""
        return self._transport is not None and not self._busy and not self._transport.is_closing()

    async def _wait(self) -> ResponseHead | Answer:
        exchange, waiter = self._exchange, self._waiter
        if waiter is None:
            if not self._busy:
                raise self._failure()
            waiter = self._waiter = self._loop.create_future()
        try:
            return await waiter
        except asyncio.CancelledError:
            self.abort(exchange, ConnectionBroken("cancelled", retry=Retry.NEVER))
            raise
        finally:
            # By now the next exchange may be running on this connection.
            if self._waiter is waiter:
                self._waiter = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._sink is not None:
            self._feed(data)
        elif not self._busy:
            self.close()  # rule 1
        else:
            self._received = True
            try:
                self._before_sink(data)
            except BrokenFraming as error:
                self._fail(BrokenAnswer(f"the worker's answer is not valid HTTP: {error}"))

    def eof_received(self) -> None:
        """Called by the event loop; the transport then closes and `connection_lost` follows."""
        self._pool.ended_by_worker += 1

    def pause_writing(self) -> None:
        """Called by the transport: more of the request waits than its high-water mark."""
        self._unsent = True

    def resume_writing(self) -> None:
        """Called by the transport: what waits still may have left before the connection ends."""
        self._unsent = False

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        self._pool.forget(self, error)
        if self._busy:
            if self._response is not None and self._sink is None and not self._collect:
                self._ended = True  # what is held may be a complete answer
                self._clean_end = error is None
            else:
                self._end_of_input(clean=error is None)

    # The answer

    def _before_sink(self, data: bytes) -> None:
        if self._response is None:
            rest = self._read_head(data)
            if rest is None:
                return
            data = rest
            if not self._collect and self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(cast("ResponseHead", self._response))
        if self._collect:
            self._feed(data)
        elif data:
            self._hold(data)

    def _read_head(self, data: bytes) -> bytes | None:
        """Read heads up to a final one; returns what follows it, or None when it is not complete yet."""
        if self._start:
            data = self._start + data
        while True:
            if not _START_OF_HEAD.startswith(data[:7]):
                raise BrokenFraming("it does not begin with HTTP/1.")
            end = data.find(_END_OF_HEAD) + 4
            if end < 4:
                if len(data) > _MAX_HEAD:
                    raise BrokenFraming("header section too large")
                if data.count(b"\n") != data.count(b"\r\n"):
                    raise BrokenFraming("bare line break in the header section")
                self._start = data
                return None
            if end > _MAX_HEAD:
                raise BrokenFraming("header section too large")
            head, reader = read_head(data[:end])
            data = data[end:]
            if head.status >= 200:
                break
        self._start = b""
        self._response = head
        self._reader = reader
        return data

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_size += len(data)
        if self._held_size > _HOLD_LIMIT and self._transport is not None:
            self._hold_paused = True
            self._transport.pause_reading()

    def _release_held(self) -> None:
        data = b"".join(self._held)
        self._held = []
        self._held_size = 0
        self._feed(data)
        if self._busy and self._ended:
            self._end_of_input(clean=self._clean_end)
        elif self._hold_paused:
            self._hold_paused = False
            # The consumer may have asked for a pause of its own meanwhile.
            if self._transport is not None and not self.reading_paused:
                self._transport.resume_reading()

    def _end_of_input(self, *, clean: bool) -> None:
        """The connection is gone; after a reset, a body that ends with it may lack anything."""
        if clean and self._reader is not None and self._reader.closed():
            self._complete(b"")
        else:
            self._fail(self._failure())

    def _feed(self, data: bytes) -> None:
        reader: BodyReader = self._reader  # type: ignore[assignment]  # comes with the head
        try:
            pieces = reader.feed(data)
        except BrokenFraming as error:
            self._fail(BrokenAnswer(f"the worker's answer is not valid HTTP: {error}"))
            return
        sink = self._sink
        if reader.complete:
            self._complete(b"".join(pieces))
        elif sink is not None:
            self.last_read = self._loop.time()
            for piece in pieces:
                sink.write(piece)
        else:
            self._pieces += pieces

    def _complete(self, last: bytes) -> None:
        response: ResponseHead = self._response  # type: ignore[assignment]  # not without one
        reader: BodyReader = self._reader  # type: ignore[assignment]  # comes with it
        sink, waiter, pieces = self._sink, self._waiter, self._pieces
        self._busy = False
        self._sink = None
        self._pieces = []  # an idle connection keeps no answer alive
        transport = self._transport
        if (
            response.keep_alive
            and not reader.leftover
            and transport is not None
            and not transport.is_closing()
            and not transport.get_write_buffer_size()  # an early answer: the rest of the request is still going out
        ):
            if self.reading_paused or self._hold_paused:
                self.reading_paused = self._hold_paused = False
                transport.resume_reading()
            self._pool.give_back(self)
        else:
            self.close()
        if sink is not None:
            sink.end(last)
        elif waiter is not None and not waiter.done():
            body = b"".join((*pieces, last)) if pieces else last
            waiter.set_result(Answer(response, body))

    def _fail(self, error: ProxyError) -> None:
        sink, waiter = self._sink, self._waiter
        self._busy = False
        self._sink = None
        self.close()
        if sink is not None:
            sink.broken(error)
        elif waiter is not None and not waiter.done():
            waiter.set_exception(error)
            waiter.exception()  # seen: a task that is cancelled at this moment never looks
        else:
            self._error = error

    def _failure(self) -> ProxyError:
        return self._error or ConnectionBroken("the worker closed the connection", retry=self._retry())

    def _retry(self) -> Retry:
        if self._received:
            return Retry.NEVER
        if self._unsent:
            return Retry.UNSENT
        return Retry.REUSED_ONLY if self.reused else Retry.BEFORE_HAND_OFF
