"""When a leg is sent again, how soon, and how often all requests together may do so.

Pure: the clock and the random source are given. The decisions are `proxy.lifecycle.context_first`'s; they rest on
two facts. Nothing that a client could notice has happened until a context worker has answered, so that leg may
go to another worker after any failure that is not the request's own fault. A hand-off is taken once, so the generation
leg may move only when no worker can have taken it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

# Answers of a worker that say nothing about the request: time-out, busy, broken, starting.
RETRIABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
# A generation worker that answers with one of these has refused before it looked at the hand-off.
REFUSED_STATUSES = frozenset({429, 503})

_FIRST_DELAY = 0.025
_LONGEST_DELAY = 1.0
_LONGEST_RETRY_AFTER = 2.0

# Retries that are always allowed, so that a quiet proxy can retry at all; the budget grows with traffic.
_MINIMUM_BUDGET = 10.0
_WINDOW_SECONDS = 10.0


class RetryBudget:
    """Limits retries to a share of recent traffic: a sick pool must not get more load because it is sick.

    Args:
        ratio: retries per request; 0 = none at all, otherwise at least ten per window are allowed.
        clock: seconds, monotonic.

    The window is approximated by two halves that are swapped: counts of the last 5 to 10 s.
    """

    def __init__(self, ratio: float, clock: Callable[[], float]) -> None:
        self._ratio = ratio
        self._clock = clock
        self._half_began = clock()
        self._requests = [0, 0]  # of this half and of the one before
        self._retries = [0, 0]
        self.exhausted = 0
        """How often a retry was refused."""

    def note_request(self) -> None:
        """A request came."""
        self._turn()
        self._requests[0] += 1

    def take(self) -> bool:
        """Whether one more retry is allowed; counts it if so."""
        self._turn()
        allowed = max(_MINIMUM_BUDGET, self._ratio * sum(self._requests)) if self._ratio else 0
        if sum(self._retries) + 1 > allowed:
            self.exhausted += 1
            return False
        self._retries[0] += 1
        return True

    def _turn(self) -> None:
        now = self._clock()
        halves = int((now - self._half_began) / (_WINDOW_SECONDS / 2))
        if halves:
            self._half_began += halves * (_WINDOW_SECONDS / 2)
            for counts in (self._requests, self._retries):
                counts[:] = [0, counts[0] if halves == 1 else 0]


def delay_before(attempt: int, retry_after: float | None, chance: random.Random) -> float | None:
    """Seconds to wait before attempt number `attempt` (the first retry is 1); None: do not try again.

    Jittered and doubling. Retry-After, in seconds, is honoured up to a cap; a worker that asks for more gets no
    further attempt, and the client hears what it said. Pass None if another worker can be asked.
    """
    if retry_after is not None:
        return retry_after if retry_after <= _LONGEST_RETRY_AFTER else None
    longest = min(_FIRST_DELAY * 2 ** (attempt - 1), _LONGEST_DELAY)
    return chance.uniform(longest / 2, longest)
