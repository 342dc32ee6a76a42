"""`router.type: random`: any of them."""

from __future__ import annotations

from random import random

from proxy.placement.candidates import Candidates
from proxy.placement.policy import Needs, Placement


class RandomChoice:
    """Every available worker with the same probability, whatever its load."""

    needs = Needs.NOTHING
    affinity = None

    def choose(self, candidates: Candidates, placement: Placement) -> int:
        """See `proxy.placement.policy.Policy`."""
        return int(random() * candidates.size)  # noqa: S311 - load, not secrets
