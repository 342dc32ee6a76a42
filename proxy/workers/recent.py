"""The last outcomes of a worker."""

from __future__ import annotations

from collections import deque

from proxy.workers.outcome import FAILURES, LegOutcome

LENGTH = 20
# "Over 90 % of the last 20": 19.
_NEARLY_ALL = 19
_HALF = LENGTH // 2
_OK = LegOutcome.OK


class RecentOutcomes:
    """The last 20 outcomes that say something: answers of all kinds and failures.

    Attributes:
        client_errors, failures: how many of them.
    """

    __slots__ = ("_outcomes", "client_errors", "failures")

    def __init__(self) -> None:
        self._outcomes: deque[LegOutcome] = deque()
        self.client_errors = 0
        self.failures = 0

    def __len__(self) -> int:
        return len(self._outcomes)

    def add(self, outcome: LegOutcome) -> None:
        """Note one and forget the oldest."""
        outcomes = self._outcomes
        outcomes.append(outcome)
        if outcome is not _OK:  # the usual case costs least
            self._count(outcome, 1)
        if len(outcomes) > LENGTH:
            oldest = outcomes.popleft()
            if oldest is not _OK:
                self._count(oldest, -1)

    def clear(self) -> None:
        """Forget all: the worker begins anew."""
        self._outcomes.clear()
        self.client_errors = self.failures = 0

    @property
    def mostly_client_errors(self) -> bool:
        """Over 90 % of 20 are 4xx."""
        return self.client_errors >= _NEARLY_ALL

    @property
    def mostly_failures(self) -> bool:
        """Over half of 20 are failures, even if never many in a row."""
        return self.failures > _HALF

    def _count(self, outcome: LegOutcome, amount: int) -> None:
        if outcome is LegOutcome.CLIENT_ERROR:
            self.client_errors += amount
        elif outcome in FAILURES:
            self.failures += amount
