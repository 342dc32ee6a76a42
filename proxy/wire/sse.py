"""Server-sent events as OpenAI-compatible servers frame them: `data: <json>`, a blank line, `[DONE]` at the end."""

import re

from proxy.wire.errors import BrokenFraming

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: clients skip it (HTML standard, section 9.2.6)."""

_BOUNDARIES = (b"\n\n", b"\n\r\n", b"\r\r")

# Two line ends, of which there are three kinds (HTML standard, section 9.2.6). CR LF is one, never two.
_boundaries = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)").finditer
_lines = re.compile(rb"\r\n|\n|\r").split
_LONGEST_EVENT = 16 * 1024 * 1024


def event(payload: bytes) -> bytes:
    """One event with a JSON payload (which has no line breaks)."""
    return b"data: " + payload + b"\n\n"


class Tail:
    """Remembers just enough of a stream to know whether it stopped between two events.

    An error event may only be added there; inside an event it would corrupt what the client has begun to read.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = b""

    def saw(self, data: bytes) -> None:
        """Note the latest piece of the stream: payload, since the line ends of chunk frames look like blank lines."""
        self._last = data if len(data) >= 4 else (self._last + data)[-4:]

    @property
    def between_events(self) -> bool:
        """True when nothing was sent yet or the last byte ended an event."""
        return not self._last or self._last.endswith(_BOUNDARIES)


class EventSplitter:
    """Cuts a stream into events, whatever the pieces in which it comes; no byte is lost, added or changed.

    Attributes:
        rest: the beginning of an event of which the end has not come.
    """

    __slots__ = ("rest",)

    def __init__(self) -> None:
        self.rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take a piece; return the events that it completes, each with the blank line at its end.

        Raises:
            BrokenFraming: an event has no end within 16 MiB.
        """
        held = self.rest
        if not held and data.find(b"\n\n") == len(data) - 2 >= 0 and b"\r" not in data:
            return [data]  # as workers write: one event in each piece
        start = max(0, len(held) - 3)  # a boundary can begin in what is held
        held += data
        ends = [found.end() for found in _boundaries(held, start)]
        if ends and ends[-1] == len(held) and held.endswith(b"\r"):
            ends.pop()  # a line feed may follow, as a part of the same line end
        events: list[bytes] = []
        at = 0
        for end in ends:
            events.append(bytes(held[at:end]))
            at = end
        del held[:at]
        if len(held) > _LONGEST_EVENT:
            raise BrokenFraming("an event without an end")
        return events


def data_of(event: bytes) -> bytes:
    """The data of one event: its `data` lines without the name, joined by line feeds; empty if there are none."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
        return event[6:-2]
    return b"\n".join(value.removeprefix(b" ") for value in map(_data, _lines(event)) if value is not None)


def with_data(event: bytes, payload: bytes) -> bytes:
    """The same event with another JSON payload, its other lines as they were."""
    others = [line + b"\n" for line in _lines(event) if line and _data(line) is None]
    # Line breaks are white space between JSON's tokens.
    line = payload.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"".join((*others, b"data: ", line, b"\n\n"))


def _data(line: bytes) -> bytes | None:
    if line.startswith(b"data:"):
        return line[5:]
    return b"" if line == b"data" else None
