"""One answer of a worker, whatever its bytes, read through a real connection; and what h11 makes of the same bytes."""

import asyncio
import contextlib
import random
import re

import h11
import httptools
from fake_pool import REQUEST, FakeConnections, Sink, settle

from proxy.errors import LegTimeout, ProxyError
from proxy.upstream.connection import WorkerConnection

MODES = ("answer", "rest", "framed", "plain")
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})\r\n")
Result = tuple[int, bytes] | ProxyError


class FrameSink(Sink):
    """Checks that what it is given are whole chunk frames."""

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.framed:
            unframed(data)

    @property
    def payload(self) -> bytes:
        return unframed(self.body) if self.framed else self.body


def unframed(data: bytes) -> bytes:
    """The payload of whole chunk frames."""
    payload = b""
    while data:
        line = _SIZE_LINE.match(data)
        assert line, f"not a chunk frame: {data[:40]!r}"
        size, begin = int(line[1], 16), line.end()
        assert size, "the last chunk was passed on"
        assert data[begin + size : begin + size + 2] == b"\r\n", f"an open chunk frame: {data[:40]!r}"
        payload += data[begin : begin + size]
        data = data[begin + size + 2 :]
    return payload


async def read(connection: WorkerConnection, mode: str) -> tuple[int, bytes]:
    """Read an answer in one of the ways there are."""
    if mode == "answer":
        answer = await connection.answer()
        return answer.head.status, answer.body
    head = await connection.head()
    if mode == "rest":
        return head.status, (await connection.rest()).body
    sink = FrameSink(framed=mode == "framed")
    connection.relay(sink)
    for _ in range(10_000):
        if sink.over:
            break
        await asyncio.sleep(0)
    if sink.error is not None:
        raise sink.error
    assert sink.over, "the sink never heard of the end"
    return head.status, sink.payload


async def outcome(arriving: list[bytes], mode: str, end: str, rng: random.Random) -> Result:
    """Feed a connection and end it: by the worker (closed, reset) or by a deadline."""
    pool = FakeConnections()
    connection, transport = await pool.new(reused=rng.random() < 0.5)
    exchange = connection.send(REQUEST)
    reading = asyncio.ensure_future(read(connection, mode))
    await asyncio.sleep(0)  # `answer` follows `send` without a pause
    for piece in arriving:
        if transport.reading:
            transport.receive(piece)
        if rng.random() < 0.5:
            await asyncio.sleep(0)
    await settle()
    if end == "closed":
        transport.receive_eof()
    elif end == "reset":
        transport.lose(ConnectionResetError())
    await settle()
    if end == "deadline" or not reading.done():
        assert end == "deadline", "the end of the connection ended nothing"
        connection.abort(exchange, LegTimeout("late"))
    await settle()
    assert reading.done(), "still waiting"
    error = reading.exception()
    assert error is None or isinstance(error, ProxyError), f"{error!r}"
    # Either it serves the next request or it is gone.
    assert connection.usable or transport.is_closing()
    assert pool.counts in ((0, 0), (1, 1)), pool.counts
    await pool.close()
    return error if error is not None else reading.result()


_BLANK_BEFORE_EXTENSION = re.compile(rb"([0-9A-Fa-f])[ \t]{1,16};")


def lenient(data: bytes) -> bytes:
    """Without the blanks that RFC 9112 §7.1.1 allows in front of a chunk extension and that neither parser takes."""
    return _BLANK_BEFORE_EXTENSION.sub(rb"\1;", data)


def by_h11(data: bytes, *, closed: bool) -> tuple[int, bytes] | None:
    """Status and body of the answer, or None if it is broken or not complete."""
    peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=2**17)
    peer.send(h11.Request(method="POST", target="/", headers=[("host", "w"), ("content-length", "0")]))
    peer.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        peer.receive_data(data)
        if closed and data:
            peer.receive_data(b"")
        while True:
            event = peer.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, body
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.RemoteProtocolError:
        return None


class _Collector:
    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.body = b""
        self.parser = httptools.HttpResponseParser(self)

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        if self.parser.get_status_code() >= 200:
            self.answers.append((self.parser.get_status_code(), self.body))
        self.body = b""


def by_httptools(data: bytes, *, closed: bool) -> tuple[int, bytes] | None:
    """The same, as llhttp sees it; a body without a length is whatever has come."""
    collector = _Collector()
    with contextlib.suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        collector.parser.feed_data(data)
    if collector.answers:
        return collector.answers[0]
    try:
        status = collector.parser.get_status_code()
    except Exception:
        return None
    return (status, collector.body) if closed and status >= 200 else None
