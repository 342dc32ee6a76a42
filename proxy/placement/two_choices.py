"""`router.type: two_choices`: the less loaded of two that are drawn at random."""

from __future__ import annotations

from random import random

from proxy.placement.candidates import Candidates
from proxy.placement.policy import Needs, Placement


class TwoChoices:
    """Nearly as even as the least loaded of all, and proxies that see only their own load do not all run to the same
    worker (Mitzenmacher, "The power of two choices in randomized load balancing", 2001)."""

    needs = Needs.NOTHING
    affinity = None

    def choose(self, candidates: Candidates, placement: Placement) -> int:
        """See `proxy.placement.policy.Policy`."""
        size = candidates.size
        first = int(random() * size)  # noqa: S311 - load, not secrets
        if size == 1:
            return first
        second = (first + 1 + int(random() * (size - 1))) % size  # noqa: S311 - as above
        return second if candidates.legs_on(second) < candidates.legs_on(first) else first
