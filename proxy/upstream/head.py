"""The status line and header fields of a worker's answer.

llhttp (through httptools) checks them strictly; the body is read by `proxy.wire.chunks`, which is faster for many
small frames and knows where each of them ends.

Heads are remembered for a while: those of a worker's streams differ in the date alone, so under load most of them have
been seen within the second.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import httptools

from proxy.wire.chunks import BodyReader, ChunkedReader, LengthReader, UntilCloseReader
from proxy.wire.errors import BrokenFraming

Headers = Sequence[tuple[bytes, bytes]]
ReaderMaker = Callable[[], BodyReader]

_BODILESS = frozenset({204, 304})
_REMEMBERED, _LONGEST_REMEMBERED = 128, 512


class ResponseHead(NamedTuple):
    """A final (not 1xx) answer's head. Header names are in lower case."""

    status: int
    headers: Headers
    keep_alive: bool

    def get(self, name: bytes) -> bytes | None:
        """The first value of a header."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


class _Collector:
    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.rstrip(b" \t")))


def read_head(data: bytes) -> tuple[ResponseHead, BodyReader]:
    """Read one head, from the status line to the empty line; a reader for the body comes with it.

    Raises:
        BrokenFraming: not a valid HTTP/1.x head, or contradictory or unknown framing.
    """
    head, make_reader = _remembered(data) if len(data) <= _LONGEST_REMEMBERED else _understand(data)
    return head, make_reader()


def _understand(data: bytes) -> tuple[ResponseHead, ReaderMaker]:
    head = parse_head(data)
    return head, framing(head)


_remembered = lru_cache(_REMEMBERED)(_understand)


def parse_head(data: bytes) -> ResponseHead:
    """Parse one head.

    Raises:
        BrokenFraming: not a valid HTTP/1.x head.
    """
    collector = _Collector()
    parser = httptools.HttpResponseParser(collector)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        raise BrokenFraming("the worker switched protocols") from None
    except httptools.HttpParserError as error:
        raise BrokenFraming(str(error)) from None
    version = parser.get_http_version()
    if version not in ("1.0", "1.1"):
        raise BrokenFraming(f"HTTP/{version} is not spoken here")
    status = parser.get_status_code()
    if not 100 <= status <= 599:
        raise BrokenFraming("the status code is none of HTTP's")
    keep_alive = version == "1.1" and not _says_close(collector.headers)
    return ResponseHead(status, tuple(collector.headers), keep_alive)


def _says_close(headers: Headers) -> bool:
    # Twice as fast as any(): this runs once per leg and request.
    for name, value in headers:  # noqa: SIM110 - see above
        if name == b"connection" and b"close" in value.lower():
            return True
    return False


def framing(head: ResponseHead) -> ReaderMaker:
    """What makes the reader of the body (RFC 9112 §6.3); answers that are not final have none.

    Raises:
        BrokenFraming: contradictory or unknown framing.
    """
    if head.status < 200:
        return partial(LengthReader, 0)
    length: bytes | None = None
    coding: bytes | None = None
    for name, value in head.headers:
        if name == b"content-length":
            if length is not None and length != value:
                raise BrokenFraming("two content-lengths")
            length = value
        elif name == b"transfer-encoding":
            if coding is not None:
                raise BrokenFraming("two transfer-encodings")
            coding = value.lower()
    if head.status in _BODILESS:
        return partial(LengthReader, 0)
    if coding is not None:
        if coding != b"chunked" or length is not None:
            raise BrokenFraming("unusable transfer-encoding")
        return ChunkedReader
    if length is None:
        return UntilCloseReader
    if not length.isdigit():
        raise BrokenFraming("bad content-length")
    return partial(LengthReader, int(length))
