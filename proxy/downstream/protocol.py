"""One client connection: uvicorn's httptools protocol, reading one request at a time.

What differs from the parent class, and why (uvicorn 0.54):

1. The head of a request is cut out of the stream and parsed alone; the body is read by `proxy.wire.chunks`. So a
   pipelined request is parsed only after the answer before it is complete, the running cycle is always the one
   that `cycle` names, and bytes that arrive meanwhile wait (reading pauses beyond 64 KiB).
2. Bodies are collected in a list and joined once; the parent appends to a bytearray and pauses each 64 KiB. The
   application starts when the body is complete.
3. Limits: header section (431), body (413, also for chunked bodies), time for a whole head and between pieces of a
   body (408). After a refusal up to 1 MiB is swallowed, since a close with unread bytes resets the connection and
   the client may never read the answer.
4. Garbage during an answer closes the connection after it; the parent would write a 400 into it.
5. No Host, two Hosts, transfer-encoding other than `chunked` or on HTTP/1.0: 400. `Upgrade` is ignored, since Java's
   HTTP client offers `h2c` with each POST and expects the body to be read.
6. The loss of the connection reaches the running request even if more requests were pipelined.
7. Closing waits for the client to take what was written, but not for ever: see `close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.parse
from collections.abc import Callable
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from proxy.downstream.cycle import EXTENSION, RequestCycle
from proxy.downstream.head import body_reader, says_close
from proxy.downstream.limits import Limits
from proxy.downstream.refusal import Refusal
from proxy.downstream.sink import RelaySink
from proxy.downstream.sinks import sink_maker
from proxy.errors import error_body, error_headers
from proxy.wire.chunks import BodyReader
from proxy.wire.errors import BrokenFraming

_END_OF_HEAD = b"\r\n\r\n"
_HOLD_LIMIT = 64 * 1024
_LINGER_LIMIT = 1024 * 1024
_FEW_PIECES = 16
_logger = logging.getLogger("proxy.downstream")


class RelayProtocol(HttpToolsProtocol):
    """See the module's docstring.

    Attributes:
        make_sink: takes a worker's answer; see `protocol_class`.
        limits: set on a subclass, since uvicorn instantiates the class itself.
        draining: states of servers that are about to stop; their answers close the connections.
    """

    limits = Limits()
    make_sink: Callable[..., RelaySink] = RelaySink
    draining: ClassVar[set[ServerState]] = set()

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the parent
        """Called by the event loop."""
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.server = get_local_addr(transport)
        self.client = get_remote_addr(transport)
        self.scheme = "https" if is_ssl(transport) else "http"
        self._unread = b""  # bytes of a head, or behind the running request
        self._running: RequestCycle | None = None  # a request whose answer is not complete
        self._reader: BodyReader | None = None  # of a body that is arriving
        self._pieces: list[bytes] = []
        self._size = 0
        self._lingering = 0  # bytes that may still be swallowed before the connection closes
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._header_lines: tuple[object, bytes] = (None, b"")
        self._expect_by(self.limits.header_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.connections.discard(self)
        self._unset_keepalive_if_required()
        self._cancel_timer()
        self.flow.resume_writing()
        cycle, self._running = self._running, None
        if cycle is not None:
            cycle.client_gone()
        self._reader = None
        self._pieces = []
        self._unread = b""

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._lingering:
            self._swallow(data)
        elif self._reader is not None:
            self._read_body(data)
        elif self._running is not None:
            self._unread += data
            if len(self._unread) > _HOLD_LIMIT:
                self.flow.pause_reading()
        elif not self.transport.is_closing():
            self._read_head(data)

    def eof_received(self) -> None:
        """Called by the event loop: a client that half-closes has left, as in uvicorn; the transport then closes."""
        cycle, self._running = self._running, None
        if cycle is not None:
            cycle.client_gone()  # the connection itself is lost only when unread answers have been taken
        self.close()

    def pause_writing(self) -> None:
        """Called by the transport above its high-water mark."""
        self.flow.pause_writing()
        if self._running is not None and self._running.sink is not None:
            self._running.sink.pause()

    def resume_writing(self) -> None:
        """Called by the transport below its low-water mark."""
        self.flow.resume_writing()
        if self._running is not None and self._running.sink is not None:
            self._running.sink.resume()

    def shutdown(self) -> None:
        """Called by the server: finish the running request, then close."""
        if self._running is not None:
            self._running.keep_alive = False
        elif self._reader is None and not self._lingering:
            self.close()

    def cut_off(self) -> None:
        """Called by the server when its time is over: nothing that is written waits for a slow client any more."""
        self.flow.resume_writing()

    def close(self) -> None:
        """Close as soon as the client has taken what was written, and after the close time-out in any case."""
        if self.transport.is_closing():
            return  # a second close would take asyncio's TLS transport apart
        self._cancel_timer()
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._expect_by(self.limits.close_timeout)

    @property
    def receiving(self) -> bool:
        """A request's head has arrived and its body has not."""
        return self._reader is not None

    @property
    def stopping(self) -> bool:
        """The server is about to stop: connections end with their next answer."""
        return bool(self.draining) and self.server_state in self.draining

    def default_header_lines(self) -> bytes:
        """uvicorn's default headers (the date), encoded; the list is replaced once per second."""
        headers = self.server_state.default_headers
        if self._header_lines[0] is not headers:
            lines = b"".join(b"%b: %b\r\n" % header for header in headers)
            self._header_lines = (headers, lines)
        return self._header_lines[1]

    # Reading a request

    def _read_head(self, data: bytes) -> None:
        if self._unread:
            data = self._unread + data
        # RFC 9112 §2.2: an empty line before the request line is tolerated; it does not count as activity.
        if data[:1] in b"\r\n":
            data = data.lstrip(b"\r\n")
        if not data:
            self._unread = b""
            if self._timer is None and self.timeout_keep_alive_task is None:
                self._keep_alive()
            return
        self._unset_keepalive_if_required()
        end = data.find(_END_OF_HEAD) + 4
        if (end if end >= 4 else len(data)) > self.limits.max_header_bytes:
            self._refuse(Refusal(431, "the header section is too large", "headers_too_large"))
        elif end >= 4:
            self._unread = b""
            self._begin(data[:end], data[end:])
        elif not data[:1].isalpha() or data.count(b"\n") != data.count(b"\r\n"):
            # Not to be waited for: another protocol, or bare line feeds and so perhaps no end of the head at all.
            self._refuse(Refusal(400, "invalid HTTP request", "invalid_http"))
        else:
            self._unread = data
            if self._timer is None:
                self._expect_by(self.limits.header_timeout)

    def _begin(self, head: bytes, rest: bytes) -> None:
        """A head is complete: build the scope, then read the body."""
        self.parser = httptools.HttpRequestParser(self)
        try:
            self.parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # rule 5
        except httptools.HttpParserError as error:
            self._refuse(Refusal(400, f"invalid HTTP request: {error}", "invalid_http"))
            return
        version = self.parser.get_http_version()
        try:
            reader = body_reader(version, self.headers, self.limits)
            self._fill_scope(version)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        self._cancel_timer()
        self._pieces = []
        self._size = 0
        self._reader = reader
        if self.expect_100_continue and not reader.complete and not rest and self._speaks_1_1:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._read_body(rest)

    def on_headers_complete(self) -> None:
        """Called by the parser; the rest of the scope is filled in when the headers have been checked."""

    def on_body(self, body: bytes) -> None:
        """Never called: the parser sees only heads."""

    def on_message_complete(self) -> None:
        """Called by the parser for requests without a body; the reader decides."""

    def _fill_scope(self, version: str) -> None:
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]  # ASGI's own keys and others
        try:
            url = httptools.parse_url(self.url)
        except httptools.HttpParserInvalidURLError:  # CONNECT's target, for one
            raise Refusal(400, "invalid request target", "invalid_http") from None
        raw_path: bytes = url.path or b"/"
        path = raw_path.decode("ascii", "replace")
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["path"] = self.root_path + (urllib.parse.unquote(path) if "%" in path else path)
        scope["raw_path"] = self.root_path.encode("ascii") + raw_path
        scope["query_string"] = url.query or b""
        scope["asgi"] = {"version": self.asgi_version, "spec_version": "2.4"}

    def _read_body(self, data: bytes) -> None:
        reader: BodyReader = self._reader  # type: ignore[assignment]  # comes with the head
        try:
            pieces = reader.feed(data)
        except BrokenFraming as error:
            self._refuse(Refusal(400, f"invalid HTTP request: {error}", "invalid_http"))
            return
        if pieces:
            # Tiny chunks weigh many times their bytes as objects of their own.
            self._pieces += pieces if len(pieces) <= _FEW_PIECES else (b"".join(pieces),)
            self._size += sum(map(len, pieces))
            if self._size > self.limits.max_body_bytes:
                self._refuse(Refusal.body_too_large(self.limits.max_body_bytes))
                return
        if reader.complete:
            self._start(reader.leftover)
        else:
            self._expect_by(self.limits.client_stall_timeout)

    def _start(self, leftover: bytes) -> None:
        """The request is complete: run the application."""
        self._cancel_timer()
        self._reader = None
        self._unread = leftover
        pieces, self._pieces = self._pieces, []
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]  # ASGI's own keys and others
        keep_alive = self._speaks_1_1 and not says_close(self.headers)
        cycle = RequestCycle(self, scope, keep_alive=keep_alive)
        cycle.body_complete(body)
        scope["extensions"] = {EXTENSION: cycle}
        self._running = cycle
        task = self.loop.create_task(cycle.run(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    @property
    def _speaks_1_1(self) -> bool:
        return bool(self.scope["http_version"] == "1.1")

    # After an answer

    def answer_complete(self, cycle: RequestCycle) -> None:
        """Called by the cycle when the last byte of its answer has been written."""
        self.server_state.total_requests += 1
        self._running = None
        transport = self.transport
        if transport.is_closing():
            return
        if not cycle.keep_alive:
            self.close()
            return
        self.flow.resume_reading()
        if self._unread:
            self.loop.call_soon(self._next_request)
        else:
            self._keep_alive()

    def _keep_alive(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def timeout_keep_alive_handler(self) -> None:
        """Called when no request has come for that time."""
        self.timeout_keep_alive_task = None
        if not self.transport.is_closing():
            self.close()

    def _next_request(self) -> None:
        # Bytes that were read in the meantime have been put behind the held ones, and perhaps begun with them.
        if (
            self._unread
            and self._running is None
            and self._reader is None
            and not self.transport.is_closing()
        ):
            self._read_head(b"")

    # Refusals

    def send_400_response(self, msg: str) -> None:
        """Replaces the parent's plain-text answer, which it would also write into a running one (rule 4)."""
        if self._running is None:
            self._refuse(Refusal(400, msg, "invalid_http"))
        else:
            self._running.keep_alive = False

    def _refuse(self, refusal: Refusal) -> None:
        """Answer a request that never reached the application, and close the connection."""
        self._cancel_timer()
        self._pieces = []
        self._unread = b""
        self._reader = None
        if self.transport.is_closing():
            return
        _logger.info("refused a request: %s", refusal.message)
        body = error_body(refusal)
        headers = [*error_headers(refusal), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(
            b"".join((refusal.status_line, self.default_header_lines(), lines, b"\r\n", body))
        )
        if self.transport.can_write_eof():
            with contextlib.suppress(OSError):  # reset already
                self.transport.write_eof()
        self._lingering = _LINGER_LIMIT  # rule 3
        self._expect_by(self.limits.close_timeout)

    def _swallow(self, data: bytes) -> None:
        self._lingering -= len(data)
        if self._lingering <= 0:
            self._lingering = 0
            self.close()

    # Slow clients

    def _expect_by(self, seconds: float) -> None:
        """Expect progress within `seconds` (0 = no limit); an armed timer is only moved, not replaced."""
        if not seconds:
            return
        self._due = self.loop.time() + seconds
        if self._timer is None:
            self._timer = self.loop.call_at(self._due, self._overdue)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        self._timer = None
        if self.loop.time() < self._due - 0.001:
            self._timer = self.loop.call_at(self._due, self._overdue)
        elif self._lingering or self.transport.is_closing():
            self.transport.abort()
        elif self._reader is None and not self._unread:
            self.close()  # nothing was asked
        else:
            self._refuse(Refusal(408, "the request did not arrive in time", "request_timeout"))


def protocol_class(limits: Limits, observe_gap: Callable[[float], None] | None = None) -> type[RelayProtocol]:
    """The protocol class for uvicorn's `Config(http=...)`.

    Args:
        limits: of its connections.
        observe_gap: told the seconds between two pieces of a stream, of some streams.
    """
    make_sink = sink_maker(limits.coalesce_seconds, observe_gap)
    attributes = {"limits": limits, "make_sink": staticmethod(make_sink)}
    return type("LimitedRelayProtocol", (RelayProtocol,), attributes)
