"""`router.type: load_balancing`: the worker with the fewest legs in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.workers.worker import Worker


class LoadBalancing:
    """Least in flight; ties go round, as in `trtllm-serve disaggregated`, so that idle workers share evenly."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, available: Sequence[Worker]) -> Worker:
        """See `proxy.placement.policy.Policy`."""
        least = min(worker.in_flight for worker in available)
        tied = [worker for worker in available if worker.in_flight == least]
        worker = tied[self._next % len(tied)]
        self._next += 1
        return worker
