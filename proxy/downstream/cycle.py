"""One request on a client connection and the answer to it.

Serves the ASGI interface (`receive`, `send`) and, as `scope["extensions"]["disagg.relay"]`, a shorter way: `watch`
tells at once that the client left, `respond` writes a whole answer, `relay` returns a sink for a worker's bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from proxy.downstream.sink import RelaySink
from proxy.errors import InternalFault, ProxyError, ShuttingDown, error_body, error_headers
from proxy.wire.chunks import LAST_CHUNK, chunk

if TYPE_CHECKING:
    from proxy.downstream.protocol import RelayProtocol
    from proxy.upstream.connection import WorkerConnection

Headers = list[tuple[bytes, bytes]]

EXTENSION = "disagg.relay"

_ENDED: dict[str, Any] = {}
_BODILESS = frozenset({204, 304})
_logger = logging.getLogger("proxy.downstream")


class RequestCycle:
    """See the module's docstring.

    Attributes:
        scope: the ASGI scope.
        keep_alive: whether the connection may serve another request after this one.
        disconnected: the client has gone before the answer was complete.
        response_started, response_complete: how far the answer is.
    """

    __slots__ = (
        "_body",
        "_callback",
        "_chunked",
        "_disconnect",
        "_head",
        "_remaining",
        "disconnected",
        "keep_alive",
        "protocol",
        "response_complete",
        "response_started",
        "scope",
        "sink",
    )

    def __init__(self, protocol: RelayProtocol, scope: dict[str, Any], *, keep_alive: bool) -> None:
        self.protocol = protocol
        self.scope = scope
        self.keep_alive = keep_alive
        self.disconnected = False
        self.response_started = False
        self.response_complete = False
        self.sink: RelaySink | None = None
        self._body: bytes | None = b""
        self._disconnect: asyncio.Future[None] | None = None
        self._callback: Callable[[], None] | None = None
        self._head: bytes | None = None  # written together with the first piece of the body
        self._chunked = False
        self._remaining: int | None = None  # bytes still to come of an answer of known length

    # From the protocol

    def body_complete(self, body: bytes) -> None:
        """The whole request has arrived."""
        self._body = body

    def client_gone(self) -> None:
        """The connection was lost."""
        if self.response_complete:
            return
        self.disconnected = True
        if self._disconnect is not None and not self._disconnect.done():
            self._disconnect.set_result(None)
        sink, self.sink = self.sink, None
        if sink is not None:
            sink.client_gone()
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    async def run(self, app: Callable[..., Any]) -> None:
        """Run the application; it must complete an answer, otherwise the client gets a 500 or a closed connection."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            _logger.exception("exception in the application")
            self._give_up(InternalFault("the proxy failed"))
        except BaseException:
            self._give_up(ShuttingDown("the proxy is stopping"))
            raise
        else:
            if not self.response_complete and not self.disconnected:
                _logger.error("the application returned without completing the answer")
                self._give_up(InternalFault("the proxy failed"))
        finally:
            # The scope holds the request's body and, as an extension, this cycle: together they would wait for the
            # garbage collector.
            self.scope = _ENDED

    def _give_up(self, error: ProxyError) -> None:
        if self.disconnected or self.response_complete:
            return
        if self.response_started and self._head is None:
            self.protocol.close()
            return
        self._head = None
        self.response_started = False
        body = error_body(error)
        self.keep_alive = False
        self.respond(error.status, error_headers(error), body)

    # ASGI

    async def receive(self) -> dict[str, Any]:
        """The body in one message, then wait for the client's leave."""
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        if not self.disconnected and not self.response_complete:
            if self._disconnect is None:
                self._disconnect = self.protocol.loop.create_future()
            await asyncio.shield(self._disconnect)  # a cancelled listener must not take it from the next one
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """Take the start or a piece of the answer."""
        protocol = self.protocol
        if protocol.flow.write_paused and not self.disconnected:
            await self._drained()
        if self.disconnected:
            raise OSError("the client has disconnected")  # ASGI spec 2.4
        if message["type"] == "http.response.start":
            if self.response_started:
                raise RuntimeError("the answer has been started already")
            # The framing is chosen here.
            headers = [header for header in message.get("headers", ()) if header[0] != b"transfer-encoding"]
            self._start(message["status"], headers)
        elif message["type"] == "http.response.body":
            if not self.response_started or self.response_complete:
                raise RuntimeError("a body without a running answer")
            self._write(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"unexpected message {message['type']!r}")

    async def _drained(self) -> None:
        """Wait until the client has taken enough; one that takes nothing for long loses its connection."""
        protocol = self.protocol
        seconds = protocol.limits.client_stall_timeout
        stalled = protocol.loop.call_later(seconds, protocol.transport.abort) if seconds else None
        try:
            await protocol.flow.drain()
        finally:
            if stalled is not None:
                stalled.cancel()

    def _start(self, status: int, headers: Headers) -> None:
        """Keep the head until the first piece of the body: one packet instead of two."""
        length = next((value for name, value in headers if name.lower() == b"content-length"), None)
        bodiless = status in _BODILESS or self.scope["method"] == "HEAD"
        self._remaining = 0 if bodiless else None if length is None else int(length)
        self._chunked = self._remaining is None and self._speaks_chunked
        if self._remaining is None and not self._chunked:
            self.keep_alive = False
        self._head = self._encode_head(status, headers, chunked=self._chunked)
        self.response_started = True

    def _write(self, data: bytes, *, more: bool) -> None:
        parts: list[bytes] = []
        if self._remaining is not None:
            if self.scope["method"] == "HEAD":
                data = b""
            elif len(data) > self._remaining or (not more and len(data) < self._remaining):
                raise RuntimeError("the body does not have the announced length")
            self._remaining -= len(data)
        if self._head is not None:
            parts.append(self._head)
            self._head = None
        if data:
            parts.append(chunk(data) if self._chunked else data)
        if not more and self._chunked:
            parts.append(LAST_CHUNK)
        self.protocol.transport.write(b"".join(parts))
        if not more:
            self.finish()

    # The extension

    def watch(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` as soon as the client has gone (at once if it has already)."""
        if self.disconnected and callback is not None:
            callback()
        else:
            self._callback = callback

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Write a whole answer; `headers` are without content-length."""
        if self.disconnected:
            return
        self.response_started = True
        if status != 204:  # RFC 9110 §8.6
            headers.append((b"content-length", b"%d" % len(body)))
        head = self._encode_head(status, headers, chunked=False)
        if self.scope["method"] == "HEAD" or status in _BODILESS:
            self.protocol.transport.write(head)
        else:
            self.protocol.transport.writelines((head, body))
        self.finish()

    def begin(self, status: int, headers: Headers) -> None:
        """Write the head of an answer of unknown length, before it is known where the body comes from."""
        self._start(status, headers)
        self._write(b"", more=True)

    def add(self, data: bytes, *, last: bool = False) -> None:
        """Write a piece of an answer that was begun so."""
        if not self.disconnected:
            self._write(data, more=not last)

    def relay(self, status: int, headers: Headers, source: WorkerConnection) -> RelaySink:
        """Write the head and return the sink for a body of which `source` is the origin.

        A `content-length` among the headers is kept; otherwise the body is chunked, or ends with the connection
        for a client of HTTP/1.0. An answer that has begun goes on; `status` and `headers` come too late for it.
        """
        if self.response_started:
            return self._sink_for(source, b"", chunked=self._chunked)
        self.response_started = True
        known_length = any(name == b"content-length" for name, _ in headers)
        chunked = not known_length and self._speaks_chunked
        if not known_length and not chunked:
            self.keep_alive = False
        head = self._encode_head(status, headers, chunked=chunked)
        return self._sink_for(source, head, chunked=chunked, known_length=known_length)

    def _sink_for(
        self, source: WorkerConnection, head: bytes, *, chunked: bool, known_length: bool = False
    ) -> RelaySink:
        sink = self.protocol.make_sink(self, source, head, chunked=chunked, known_length=known_length)
        if self.disconnected:
            sink.client_gone()
        else:
            self.sink = sink
        return sink

    # Both ways

    @property
    def _speaks_chunked(self) -> bool:
        return bool(self.scope["http_version"] != "1.0")

    def _encode_head(self, status: int, headers: Headers, *, chunked: bool) -> bytes:
        protocol = self.protocol
        if protocol.stopping:
            self.keep_alive = False
        parts = [STATUS_LINE[status], protocol.default_header_lines()]
        for name, value in headers:
            if name == b"connection" and b"close" in value.lower():
                self.keep_alive = False
            else:
                parts += (name, b": ", value, b"\r\n")
        if chunked:
            parts.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)

    def finish(self) -> None:
        """The answer is complete."""
        self.response_complete = True
        self.sink = None
        self._callback = None
        self._body = None
        if self._disconnect is not None and not self._disconnect.done():
            self._disconnect.set_result(None)
        self.protocol.answer_complete(self)
