"""The least loaded of the candidates; equally loaded ones take turns.

The turns begin at random: several processes that all began with the first worker would load it together.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import randrange

import numpy as np
import numpy.typing as npt

from proxy.placement.candidates import Candidates

# Far more than there are workers.
_MANY = 1 << 30


class LeastLoaded:
    """Finds it, and counts the turns.

    Args:
        use_tokens: the load is prompt tokens, not legs.
    """

    __slots__ = ("_turn", "_use_tokens")

    def __init__(self, *, use_tokens: bool = False) -> None:
        self._use_tokens = use_tokens
        self._turn = randrange(_MANY)  # noqa: S311 - load, not secrets

    def choose(self, candidates: Candidates) -> int:
        """The position of one of the least loaded."""
        if candidates.few:
            return self._of_few(candidates.few_tokens() if self._use_tokens else candidates.few_legs())
        return self._of_many(candidates.tokens() if self._use_tokens else candidates.legs())

    def _of_few(self, loads: Sequence[int]) -> int:
        least = min(loads)
        if loads.count(least) == 1:
            return loads.index(least)
        self._turn += 1
        tied = [position for position, load in enumerate(loads) if load == least]
        return tied[self._turn % len(tied)]

    def _of_many(self, loads: npt.NDArray[np.signedinteger]) -> int:
        self._turn += 1
        tied = np.flatnonzero(loads == loads[loads.argmin()])
        return int(tied[self._turn % len(tied)])
