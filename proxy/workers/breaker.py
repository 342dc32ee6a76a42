"""The circuit breaker of one worker. Pure and synchronous; the clock is given.

    closed      legs may come; as many failures in a row as the threshold open it
    open        no legs for a while: twice as long each time, up to a minute
    half open   the time is over: one trial leg at a time; if it succeeds the breaker closes, else it opens again

Nothing lasts: an open breaker becomes half open by itself, and after a minute in peace the next failure counts as the
first one again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

LONGEST_SECONDS = 60.0


class BreakerState(StrEnum):
    """See the module's docstring."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """See the module's docstring.

    Args:
        clock: seconds, monotonic.
        threshold: failures in a row.
        seconds: how long it is open the first time.

    Attributes:
        closed: whether legs may come without further ado.
        open_until: when the time is over, if it is not closed.
        reason: why it opened last.
    """

    __slots__ = (
        "_clock",
        "_closed_at",
        "_failures",
        "_level",
        "_seconds",
        "_threshold",
        "_trial",
        "closed",
        "open_until",
        "reason",
    )

    def __init__(self, *, clock: Callable[[], float], threshold: int, seconds: float) -> None:
        self._clock = clock
        self._threshold = threshold
        self._seconds = seconds
        self._failures = 0
        self._level = 0
        self._closed_at = clock()
        self._trial = False
        self.closed = True
        self.open_until = 0.0
        self.reason = ""

    @property
    def state(self) -> BreakerState:
        """The state now."""
        if self.closed:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._clock() < self.open_until else BreakerState.HALF_OPEN

    @property
    def wants_trial(self) -> bool:
        """Whether it is half open and no trial leg is running."""
        return not self._trial and self.state is BreakerState.HALF_OPEN

    def begin_trial(self) -> None:
        """A trial leg has been placed; `succeed`, `fail` or `end_trial` must follow."""
        self._trial = True

    def end_trial(self) -> None:
        """The trial leg has ended and said nothing; the next one may come."""
        self._trial = False

    def succeed(self, *, trial: bool = False) -> None:
        """A leg has succeeded. Of a breaker that is not closed only a trial counts: other legs began before."""
        self._failures = 0
        if trial and not self.closed:
            self._trial = False
            self.closed = True
            self._closed_at = self._clock()

    def fail(self, reason: str, *, trial: bool = False) -> bool:
        """A leg has failed; returns whether the breaker opened because of it."""
        if not self.closed:
            if trial:
                self.open(reason)
            return trial
        self._failures += 1
        if self._failures < self._threshold:
            return False
        self.open(reason)
        return True

    def open(self, reason: str) -> None:
        """Open, or open again, for twice as long as the last time if that was not long ago."""
        now = self._clock()
        if self.closed and now - self._closed_at > LONGEST_SECONDS:
            self._level = 0
        self.open_until = now + min(self._seconds * 2**self._level, LONGEST_SECONDS)
        if self._seconds * 2**self._level < LONGEST_SECONDS:
            self._level += 1
        self._failures = 0
        self._trial = False
        self.closed = False
        self.reason = reason

    def close(self) -> None:
        """Forget everything."""
        self._failures = self._level = 0
        self._trial = False
        self.closed = True
        self._closed_at = self._clock()

    def allow_trial(self) -> None:
        """What opened it has gone, as far as one can see: half open at once, and a new failure counts as the first."""
        if not self.closed:
            self.open_until = min(self.open_until, self._clock())
            self._level = 0
