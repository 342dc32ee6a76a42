"""`router.type: round_robin`: one after the other."""

from __future__ import annotations

from proxy.placement.candidates import Candidates
from proxy.placement.policy import Needs, Placement


class RoundRobin:
    """A counter modulo the number of available workers, as in `trtllm-serve disaggregated`."""

    needs = Needs.NOTHING
    affinity = None

    def __init__(self) -> None:
        self._next = 0

    def choose(self, candidates: Candidates, placement: Placement) -> int:
        """See `proxy.placement.policy.Policy`."""
        position = self._next % candidates.size
        self._next = position + 1
        return position
