"""What a client sends, whatever its bytes, given to the server's protocol; and what h11 and llhttp make of it."""

import asyncio
import contextlib
import random
import urllib.parse
from typing import Any, NamedTuple

import h11
import httptools
from fake_loop import FakeLoop
from fake_transport import FakeTransport
from uvicorn.config import Config
from uvicorn.server import ServerState

from proxy.downstream.limits import Limits
from proxy.downstream.protocol import RelayProtocol, protocol_class

LIMITS = Limits(max_header_bytes=4096, max_body_bytes=5000)
# Longer than every time-out of a connection, the keep-alive one included.
AGES = 1000.0
BODY = b'{"ok":true}'
_DATE = [(b"date", b"Sun, 29 Nov 2026 12:00:00 GMT")]


class Request(NamedTuple):
    """A request as a parser sees it."""

    method: str
    target: bytes
    body: bytes


class Seen(NamedTuple):
    """``requests`` reached the application; ``written`` is everything that was answered."""

    requests: list[Request]
    written: bytes
    closed: bool


class _Application:
    """Answers each request in one of the ways there are, and keeps it."""

    def __init__(self, rng: random.Random) -> None:
        self.requests: list[Request] = []
        self._rng = rng

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        assert urllib.parse.unquote(scope["raw_path"].decode("ascii", "replace")) == scope["path"]
        self.requests.append(Request(scope["method"], target, message["body"]))
        for _ in range(self._rng.randrange(3)):
            await asyncio.sleep(0)
        headers = [(b"content-type", b"application/json")]
        if self._rng.random() < 0.5:
            scope["extensions"]["disagg.relay"].respond(200, headers, BODY)
            return
        if self._rng.random() < 0.5:
            headers.append((b"content-length", b"%d" % len(BODY)))
        with contextlib.suppress(OSError):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": BODY[:4], "more_body": True})
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": BODY[4:], "more_body": False})


async def serve(arriving: list[bytes], rng: random.Random) -> Seen:
    """Give the bytes to a connection, then let its time-outs pass."""
    app = _Application(rng)
    protocol, transport = _connect(app)
    for piece in arriving:
        if transport.is_closing():
            break
        if transport.reading:
            transport.receive(piece)
        if rng.random() < 0.5:
            await _settle(protocol)
    await _settle(protocol)
    answered = len(transport.written)
    protocol.loop.advance(AGES)  # type: ignore[attr-defined]
    await _settle(protocol)
    assert transport.is_closing(), f"open for ever after {answered} bytes"
    transport.lose()
    await _settle(protocol)
    assert not protocol.tasks, "a task outlives its connection"
    assert not protocol.connections
    assert not protocol.loop.armed, "a timer outlives its connection"  # type: ignore[attr-defined]
    return Seen(app.requests, transport.written, transport.is_closing())


def _connect(app: Any) -> tuple[RelayProtocol, FakeTransport]:
    config = Config(app, http=protocol_class(LIMITS), ws="none", lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    state.default_headers = _DATE
    protocol = config.http_protocol_class(config, state, {}, FakeLoop())  # type: ignore[call-arg]
    assert isinstance(protocol, RelayProtocol)
    return protocol, FakeTransport(protocol)


async def _settle(protocol: RelayProtocol) -> None:
    for turn in range(1000):
        if turn > 8 and not protocol.tasks:
            break
        await asyncio.sleep(0)


def answers(written: bytes, requests: list[Request]) -> list[tuple[int, bytes, bool]]:
    """Take answers apart: status, body, whether the connection ends. Raises what h11 raises."""
    found: list[tuple[int, bytes, bool]] = []
    while written:
        method = requests[len(found)].method if len(found) < len(requests) else "POST"
        peer = h11.Connection(h11.CLIENT)
        headers = [("host", "p")]
        peer.send(h11.Request(method=method if method.isalpha() else "POST", target="/", headers=headers))
        peer.send(h11.EndOfMessage())
        peer.receive_data(written)
        status, body = 0, b""
        while True:
            event = peer.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
            elif event is h11.NEED_DATA:
                peer.receive_data(b"")  # ends with the connection
            else:
                assert isinstance(event, h11.InformationalResponse), event
        found.append((status, body, peer.their_state is h11.MUST_CLOSE))
        written = peer.trailing_data[0]
    return found


def by_h11(data: bytes) -> list[Request]:
    """Complete requests up to the first error."""
    peer = h11.Connection(h11.SERVER, max_incomplete_event_size=2**17)
    found: list[Request] = []
    body = b""
    with contextlib.suppress(h11.ProtocolError):
        peer.receive_data(data)
        while True:
            event = peer.next_event()
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append(Request(request.method.decode(), bytes(request.target), body))
                peer.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                peer.send(h11.EndOfMessage())
                if peer.our_state is h11.MUST_CLOSE:
                    break
                peer.start_next_cycle()
            else:
                break
    return found


class _Collector:
    def __init__(self) -> None:
        self.found: list[Request] = []
        self.parser: Any = httptools.HttpRequestParser(self)
        self._target = self._body = b""

    def on_message_begin(self) -> None:
        self._target = self._body = b""

    def on_url(self, data: bytes) -> None:
        self._target += data

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self.found.append(Request(self.parser.get_method().decode(), self._target, self._body))


def by_httptools(data: bytes) -> list[Request]:
    """The same, as llhttp sees it (which stops at an upgrade)."""
    collector = _Collector()
    with contextlib.suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        collector.parser.feed_data(data)
    return collector.found
