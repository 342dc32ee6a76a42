"""Keeps a message that comes again and again from drowning the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

SECONDS = 10.0
BURST = 5
_EXEMPT = "proxy.access"
# Beyond this many the oldest are forgotten.
_MOST = 1000


class RepeatFilter(logging.Filter):
    """Of equal messages `burst` pass within `seconds`; the first one after that says how many were left out.

    Equal are those of the same logger and level with the same text; with an exception, those from the same place
    with the same kind of exception, whatever request they name. Access lines are never left out.

    Args:
        seconds: counted from the first message.
        burst: so many are news, such as a process that starts again.
        clock: seconds, monotonic.
    """

    def __init__(
        self, seconds: float = SECONDS, burst: int = BURST, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__()
        self._seconds = seconds
        self._burst = burst
        self._clock = clock
        self._seen: dict[tuple[str, int, object], tuple[float, int]] = {}  # until when, and how many came

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by the logging library."""
        if record.name == _EXEMPT:
            return True
        error = record.exc_info[0] if record.exc_info else None
        text = record.getMessage()
        key = (record.name, record.levelno, text if error is None else (record.msg, error))
        now = self._clock()
        until, came = self._seen.pop(key, (0.0, 0))
        if now < until:
            self._seen[key] = until, came + 1
            return came < self._burst
        if len(self._seen) >= _MOST:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = now + self._seconds, 1
        if came > self._burst:
            record.msg = f"{text} ({came - self._burst} more of these in the meantime)"
            record.args = ()
        return True
