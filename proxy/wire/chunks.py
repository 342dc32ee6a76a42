"""The body of an HTTP/1.1 answer (RFC 9112 §6 and §7.1), decoded or passed on frame by frame.

Three framings: chunked, content-length, and until the connection closes. A reader gets the bytes that
arrive and returns what is to be passed on, in one of two forms:

* plain: the payload, for a consumer without framing or with a known length;
* framed: chunk frames for a client that reads a chunked body. A chunked source is then relayed verbatim as
  far as possible: the walk over the frames shows where each one ends, complete frames with a bare hexadecimal
  size go out as they came, in one slice. A frame of which only a part has arrived is framed anew with the bytes
  at hand, so that no announced frame ever stays open: an error event can follow at any time. Extensions
  and trailers are dropped. The last chunk is not passed on; the consumer writes it when the message is complete.
"""

import re
from typing import Protocol

from proxy.wire.errors import BrokenFraming

LAST_CHUNK = b"0\r\n\r\n"

_CRLF = b"\r\n"
_MAX_TRAILER = 16384

# Patterns, since `int` alone would also take signs, underscores, blanks and `0x`. 16 digits hold 64 bits. A line
# break inside an extension would end the line for a lenient parser, so it is none (RFC 9112 §7.1.1, §2.2).
_BARE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})\r\n").match
_EXTENDED_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]{0,16};[^\r\n]{0,4000}\r\n").match
# Fields that frame a message have no place behind it (RFC 9110 §6.5.1), and strict parsers refuse them there.
_TRAILER = re.compile(
    rb"(?:(?!(?i:content-length|transfer-encoding):)[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)+\r\n"
).fullmatch
_BEGINNING_OF_LINE = re.compile(rb"[0-9A-Fa-f]{1,16}(?:\r|[ \t]{0,16}(?:;[^\r\n]{0,4000}\r?)?)").fullmatch


def chunk(payload: bytes) -> bytes:
    """One chunk frame."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


class BodyReader(Protocol):
    """Follows one body to its end.

    Attributes:
        framed: return chunk frames, not plain payload.
        complete: the last byte of the message has been seen.
        leftover: bytes that came behind the message; a client of ours must treat them as an error.
    """

    framed: bool
    complete: bool
    leftover: bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes from the connection; return the pieces to pass on.

        Raises:
            BrokenFraming: the bytes are not a valid body.
        """
        ...

    def closed(self) -> bool:
        """The connection ended: whether the message is complete."""
        ...


class LengthReader:
    """A body of known length; `framed` for a client that is not told the length."""

    __slots__ = ("_remaining", "complete", "framed", "leftover")

    def __init__(self, length: int) -> None:
        self.framed = False
        self.complete = length == 0
        self.leftover = b""
        self._remaining = length

    def feed(self, data: bytes) -> list[bytes]:
        """See `BodyReader`."""
        if len(data) > self._remaining:
            self.leftover += data[self._remaining :]
            data = data[: self._remaining]
        self._remaining -= len(data)
        self.complete = self._remaining == 0
        if not data:
            return []
        return [chunk(data)] if self.framed else [data]

    def closed(self) -> bool:
        """See `BodyReader`."""
        return self.complete


class UntilCloseReader:
    """A body that ends with the connection (HTTP/1.0 style)."""

    __slots__ = ("complete", "framed", "leftover")

    def __init__(self) -> None:
        self.framed = False
        self.complete = False
        self.leftover = b""

    def feed(self, data: bytes) -> list[bytes]:
        """See `BodyReader`."""
        if not data:
            return []
        return [chunk(data)] if self.framed else [data]

    def closed(self) -> bool:
        """See `BodyReader`."""
        self.complete = True
        return True


class ChunkedReader:
    """A chunked body."""

    __slots__ = ("_line", "_missing_crlf", "_remaining", "_trailer", "complete", "framed", "leftover")

    def __init__(self) -> None:
        self.framed = False
        self.complete = False
        self.leftover = b""
        self._line = b""  # the beginning of a size line (or of the trailer section)
        self._remaining = 0  # payload bytes of the open frame that have not arrived
        self._missing_crlf = 0  # bytes of the line end behind the open frame's payload that have not arrived
        self._trailer = False  # the last chunk has been seen

    def feed(self, data: bytes) -> list[bytes]:
        """See `BodyReader`."""
        pieces: list[bytes] = []
        if self.complete:
            self.leftover += data
            return pieces
        at = self._finish_open_frame(data, pieces) if self._remaining or self._missing_crlf else 0
        if self._line:
            data, at, self._line = self._line + data[at:], 0, b""
        if not self._trailer:
            at = self._walk(data, at, pieces)
        if self._trailer:
            self._read_trailer(data[at:])
        return pieces

    def closed(self) -> bool:
        """See `BodyReader`."""
        return self.complete

    def _walk(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        """Pass over whole frames from a frame's start; returns where the trailer section begins, or the end."""
        framed = self.framed
        run = at  # start of the bare frames that have been passed over and not yet handed out
        length = rest = len(data)
        payload: slice | None = None  # of a frame of which only a part has arrived
        while at < length:
            line = _BARE_LINE(data, at)
            bare = line is not None
            if line is None:
                line = _EXTENDED_LINE(data, at)
            if line is None:
                self._line = _beginning_of_line(data[at:])
                break
            size = int(line[1], 16)
            if size == 0:
                self._trailer = True
                rest = line.end()
                break
            begin = line.end()
            end = begin + size
            if end + 2 > length:
                payload = slice(begin, end)
                break
            if not data.startswith(_CRLF, end):
                raise BrokenFraming("no line end behind a chunk")
            if not (framed and bare):
                if run < at:
                    pieces.append(data[run:at])
                pieces.append(chunk(data[begin:end]) if framed else data[begin:end])
                run = end + 2
            at = end + 2
        if run < at:
            pieces.append(data[run:at])
        if payload is not None:
            self._open_frame(data, payload.start, payload.stop, pieces)
        return rest

    def _open_frame(self, data: bytes, begin: int, end: int, pieces: list[bytes]) -> None:
        payload = data[begin:end]
        self._remaining = end - begin - len(payload)
        self._missing_crlf = 2
        if payload:
            pieces.append(chunk(payload) if self.framed else payload)
        if not self._remaining and len(data) > end:
            self._take_line_end(data[end:])

    def _finish_open_frame(self, data: bytes, pieces: list[bytes]) -> int:
        payload = data[: self._remaining]
        if payload:
            self._remaining -= len(payload)
            pieces.append(chunk(payload) if self.framed else payload)
        at = len(payload)
        if not self._remaining:
            at += self._take_line_end(data[at : at + self._missing_crlf])
        return at

    def _take_line_end(self, data: bytes) -> int:
        if data != _CRLF[2 - self._missing_crlf :][: len(data)]:
            raise BrokenFraming("no line end behind a chunk")
        self._missing_crlf -= len(data)
        return len(data)

    def _read_trailer(self, data: bytes) -> None:
        """Drop trailer fields up to the empty line that ends the message."""
        if data.startswith(_CRLF):
            end = 2
        else:
            end = data.find(b"\r\n\r\n", 0, _MAX_TRAILER) + 4
            if end < 4:
                if len(data) >= _MAX_TRAILER:
                    raise BrokenFraming("trailer section too long")
                self._line = data
                return
            if _TRAILER(data, 0, end) is None:
                # A lenient hop before us may have seen the end of the message elsewhere (RFC 9112 §11.2).
                raise BrokenFraming("bad trailer section")
        self.complete = True
        self.leftover = data[end:]


def _beginning_of_line(data: bytes) -> bytes:
    """Refuse at once what cannot become a size line."""
    if _BEGINNING_OF_LINE(data) is None:
        raise BrokenFraming("bad chunk size line")
    return data
