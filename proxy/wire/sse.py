"""Server-sent events as OpenAI-compatible servers frame them: `data: <json>`, a blank line, `[DONE]` at the end."""

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: clients skip it (HTML standard, section 9.2.6)."""

_BOUNDARIES = (b"\n\n", b"\n\r\n", b"\r\r")


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
