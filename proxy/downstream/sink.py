"""Takes a worker's answer straight to the client's transport, in the call in which its bytes arrived.

The theory: the worker connection's `data_received` hands over chunk frames (or plain bytes for a body of known
length), they are written to the client's transport, and that is all. No task wakes and nothing is queued here: the
only buffer is the transport's own. Above its high-water mark the event loop calls `pause_writing`, which pauses
the worker's socket; below the low-water mark it is read again. A client that leaves ends the exchange with the
worker at once. A task awaits `done` until the end, since an application that returns early would lose the
connection.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from proxy.errors import ClientGone, ProxyError
from proxy.wire.chunks import LAST_CHUNK, ChunkedReader, chunk
from proxy.wire.sse import Tail

if TYPE_CHECKING:
    from proxy.downstream.cycle import RequestCycle
    from proxy.upstream.connection import WorkerConnection


class RelaySink:
    """See the module's docstring.

    Attributes:
        framed: pieces are chunk frames.
        done: completes with None after the last byte, or with the error that ended the relay early. After an error
            of the worker the answer is still open: `close` or `abort` ends it.
        bytes_relayed: as written, frames included.
        first_byte_at: `perf_counter` at the first piece, seconds; 0 before it.
    """

    __slots__ = (
        "_before",
        "_cycle",
        "_head",
        "_known_length",
        "_last",
        "bytes_relayed",
        "done",
        "first_byte_at",
        "framed",
        "source",
        "transport",
    )

    def __init__(
        self,
        cycle: RequestCycle,
        source: WorkerConnection,
        head: bytes,
        *,
        chunked: bool,
        known_length: bool = False,
    ) -> None:
        protocol = cycle.protocol
        self._cycle = cycle
        self._head: bytes | None = head
        self._before = self._last = b""  # the latest two pieces
        self._known_length = known_length
        self.framed = chunked
        self.source: WorkerConnection | None = source
        self.transport = protocol.transport
        self.done: asyncio.Future[ProxyError | None] = protocol.loop.create_future()
        self.bytes_relayed = 0
        self.first_byte_at = 0.0
        if protocol.flow.write_paused:
            source.pause()

    # From the worker connection

    def write(self, data: bytes) -> None:
        """See `proxy.upstream.connection.Sink`."""
        self._before, self._last = self._last, data
        self.bytes_relayed += len(data)
        if self._head is not None:
            self.first_byte_at = perf_counter()
            data, self._head = self._head + data, None
        if not self.transport.is_closing():
            self.transport.write(data)

    def end(self, data: bytes) -> None:
        """See `proxy.upstream.connection.Sink`."""
        if self.done.done():
            return
        self.source = None
        RelaySink.write(self, data + LAST_CHUNK if self.framed else data)  # the last piece never waits
        self._cycle.finish()
        self.done.set_result(None)

    def broken(self, error: ProxyError) -> None:
        """See `proxy.upstream.connection.Sink`."""
        self.source = None
        if not self.done.done():
            self.done.set_result(error)

    # From the client's side

    def flush_head(self) -> None:
        """Write the head now: the worker has sent its head but no byte of the body."""
        if self._head and not self.transport.is_closing():
            self.transport.write(self._head)
            self._head = b""

    def comment(self, data: bytes) -> bool:
        """Write something between the head and the first piece; False when it is too late for that."""
        if self.first_byte_at or self._known_length or self.done.done() or self.transport.is_closing():
            return False
        self.flush_head()
        self.transport.write(chunk(data) if self.framed else data)
        return True

    def pause(self) -> None:
        """The client reads too slowly."""
        if self.source is not None:
            self.source.pause()

    def resume(self) -> None:
        """The client has caught up."""
        if self.source is not None:
            self.source.resume()

    def client_gone(self) -> None:
        """The client's connection was lost."""
        self.broken(ClientGone("the client left"))

    @property
    def between_events(self) -> bool:
        """Whether an error event may be added here without corrupting an event or exceeding the content-length."""
        if self._known_length:
            return False
        tail = Tail()
        for piece in (self._before, self._last):
            for payload in ChunkedReader().feed(piece) if self.framed else (piece,):
                tail.saw(payload)
        return tail.between_events

    def close(self, last: bytes = b"") -> None:
        """End an answer that broke off, after an error event if there is one.

        The message is complete then, and its head has not announced that the connection closes: it stays open for the
        client's next request.
        """
        cycle = self._cycle
        if cycle.disconnected or cycle.response_complete:
            return
        if self.framed:
            last = (chunk(last) if last else b"") + LAST_CHUNK
        RelaySink.write(self, last)
        cycle.finish()

    def abort(self) -> None:
        """End an answer that broke off so that the client notices: without the end of the message."""
        cycle = self._cycle
        if not cycle.disconnected and not cycle.response_complete:
            cycle.disconnected = True  # nothing more is expected of the application
            self.transport.abort()
