"""`router.type: load_balancing`: the worker that has the least to do."""

from __future__ import annotations

from proxy.placement.candidates import Candidates
from proxy.placement.least_loaded import LeastLoaded
from proxy.placement.policy import Needs, Placement


class LoadBalancing:
    """Fewest legs in flight, or fewest estimated prompt tokens.

    Args:
        use_tokens: count prompt tokens. `trtllm-serve disaggregated` counts characters or ids and can do so for
            completions on context workers alone; here the size of the body stands for it, on every route.
    """

    affinity = None

    def __init__(self, *, use_tokens: bool = False) -> None:
        self._least = LeastLoaded(use_tokens=use_tokens)
        self.needs = Needs.TOKENS if use_tokens else Needs.NOTHING

    def choose(self, candidates: Candidates, placement: Placement) -> int:
        """See `proxy.placement.policy.Policy`."""
        return self._least.choose(candidates)
