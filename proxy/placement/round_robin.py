"""`router.type: round_robin`: one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.workers.worker import Worker


class RoundRobin:
    """A counter modulo the number of available workers, as in `trtllm-serve disaggregated`."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, available: Sequence[Worker]) -> Worker:
        """See `proxy.placement.policy.Policy`."""
        worker = available[self._next % len(available)]
        self._next += 1
        return worker
