"""What the affinity policies have in common: the worker follows from a key, as long as it is not overloaded."""

from __future__ import annotations

from proxy.placement.bound import load_limit
from proxy.placement.candidates import Candidates
from proxy.placement.least_loaded import LeastLoaded
from proxy.placement.policy import AffinityCounts, Needs, Placement
from proxy.placement.rendezvous import few_scores, scores


class BoundedHash:
    """Rendezvous hashing bounded by load. There is no table of conversations: every process computes the same.

    The candidate with the highest score gets the request unless that would lift it over `load_limit`; then the next
    highest that is below. A request without a key goes to the least loaded. Subclasses say what the key is.
    """

    needs = Needs.NOTHING

    def __init__(self) -> None:
        self.affinity: AffinityCounts = AffinityCounts()
        self._least = LeastLoaded()

    def key(self, placement: Placement) -> int | None:
        """The key of a request, or None."""
        raise NotImplementedError("the subclasses, one per key, define it")

    def choose(self, candidates: Candidates, placement: Placement) -> int:
        """See `proxy.placement.policy.Policy`."""
        key = self.key(placement)
        if key is None:
            self.affinity.misses += 1
            return self._least.choose(candidates)
        return self._choose_of_few(candidates, key) if candidates.few else self._choose(candidates, key)

    def _choose_of_few(self, candidates: Candidates, key: int) -> int:
        loads = candidates.few_legs()
        limit = load_limit(sum(loads), candidates.size)
        ranking = few_scores(candidates.seeds, key)
        first = ranking.index(max(ranking))
        if loads[first] < limit:
            self.affinity.hits += 1
            return first
        self.affinity.spills += 1
        return max((score, position) for position, score in enumerate(ranking) if loads[position] < limit)[1]

    def _choose(self, candidates: Candidates, key: int) -> int:
        loads = candidates.legs()
        limit = load_limit(int(loads.sum()), candidates.size)
        ranking = scores(candidates.seed_array, key)
        first = int(ranking.argmax())
        if loads[first] < limit:
            self.affinity.hits += 1
            return first
        self.affinity.spills += 1
        ranking[loads >= limit] = 0
        return int(ranking.argmax())
