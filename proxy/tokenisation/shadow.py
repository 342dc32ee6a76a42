"""Whether the proxy's token ids can be trusted: they are compared with those that workers make of the same requests.

The first requests of a process, and a share of all later ones, go to the worker as text; the ids in its answer are
compared with the proxy's. Too many differences end the proxy's tokenisation: the workers are right by definition.
"""

from __future__ import annotations

from collections import Counter, deque

WARM_UP = 8
"""So many comparisons must have agreed before the proxy's ids are sent at all: a wrong template does no harm."""

_REMEMBERED = 1000
_FEWEST = 100  # so that one difference among few comparisons is not a large share


class Trust:
    """Verdict over the latest comparisons.

    Args:
        max_mismatch: share of the latest 1,000 that may differ; fewer than 100 count as 100.

    Attributes:
        results: comparisons by result, `same` and `different`.
        lost: too many differed; it stays so until the process ends.
    """

    def __init__(self, max_mismatch: float) -> None:
        self._most = max_mismatch
        self._latest: deque[bool] = deque(maxlen=_REMEMBERED)
        self.results: Counter[str] = Counter()
        self.lost = False

    @property
    def warming_up(self) -> bool:
        """Whether too few have agreed so far."""
        return self.results["same"] < WARM_UP

    def note(self, *, same: bool) -> None:
        """A comparison has ended."""
        self.results["same" if same else "different"] += 1
        self._latest.append(same)
        different = len(self._latest) - sum(self._latest)
        self.lost = self.lost or different > self._most * max(_FEWEST, len(self._latest))
