"""Is an answer the one the workers gave? A wrong answer counts as an error, never as a fast result."""

import json

from bench.cases import Case
from bench.fakes.framing import dechunk
from bench.payloads import ANSWER_TEXT, stream_bytes, stream_events


class AnswerCheck:
    """Checks of one proxy's answers to one case. The first answer is read in full, later ones by size and marks.

    A proxy may write the JSON answer anew (drop the hand-off, add nulls), so its size is learned from the
    first answer, whose content must be right, and must then stay the same.
    """

    __slots__ = ("_answer_bytes", "_events", "_full_left", "_marker", "_stream_bytes", "_streamed")

    def __init__(self, case: Case, full: int = 3) -> None:
        """`full`: how many streamed answers are compared event by event."""
        self._streamed = case.streamed
        self._events = b"".join(stream_events(case))
        self._stream_bytes = stream_bytes(case)
        self._answer_bytes: int | None = None
        self._marker = ANSWER_TEXT[-60:].encode()
        self._full_left = full

    def problem(self, head: bytes, body: bytes, chunked: bool) -> str | None:
        """None for a right answer, else what is wrong. `body` still has its chunk frames."""
        if not head.startswith(b"HTTP/1.1 200"):
            return f"{head[:30]!r} {body[:200]!r}"
        return self._stream_problem(body, chunked) if self._streamed else self._json_problem(body, chunked)

    def _json_problem(self, body: bytes, chunked: bool) -> str | None:
        if chunked:
            found = dechunk(body)
            if found is None:
                return "chunked answer is cut"
            body = found[0]
        if self._answer_bytes is None:
            try:
                choice = json.loads(body)["choices"][0]
                right = choice["message"]["content"] == ANSWER_TEXT and choice["finish_reason"] == "stop"
            except (ValueError, KeyError, IndexError, TypeError):
                right = False
            if not right:
                return f"wrong content: {body[:200]!r}"
            self._answer_bytes = len(body)
            return None
        if len(body) != self._answer_bytes:
            return f"{len(body)} bytes instead of {self._answer_bytes}"
        return None if self._marker in body else "content lost"

    def _stream_problem(self, body: bytes, chunked: bool) -> str | None:
        if not chunked:
            return "stream is not chunked"
        expected = self._events.count(b"data: ")
        if not self._full_left and body.count(b"data: ") == expected and body.endswith(b"0\r\n\r\n"):
            # Frames of at least 3 bytes of size line and line ends; the exact size needs no more than this bound.
            if len(body) < self._stream_bytes:
                return f"{len(body)} bytes of frames for {self._stream_bytes} bytes of events"
            return None if body.rfind(b"data: [DONE]", -200) >= 0 else "no [DONE] at the end"
        found = dechunk(body)
        if found is None:
            return "chunked answer is cut"
        self._full_left = max(0, self._full_left - 1)
        events = found[0]
        if events == self._events:
            return None
        if _contents(events) != _contents(self._events):
            return f"events differ: {events.count(b'data: ')} instead of {expected}"
        return None


def _contents(stream: bytes) -> list[object]:
    """What the events say, for a proxy that writes them anew."""
    contents: list[object] = []
    for line in stream.split(b"\n"):
        if line.startswith(b"data: {"):
            choice = json.loads(line[6:])["choices"][0]
            contents.append(
                (choice["delta"].get("role"), choice["delta"].get("content"), choice.get("finish_reason"))
            )
        elif line.startswith(b"data: "):
            contents.append(line[6:])
    return contents
