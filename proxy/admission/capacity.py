"""How many requests the workers can take: the limits per worker, added up over those that can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

PerWorker = int | Literal["auto"]
"""Requests per worker; 0 = no limit, `auto` = the batch size that the worker tells."""


class Capacity(NamedTuple):
    """Requests that fit into all workers of a role together; 0 = no limit."""

    context: int = 0
    generation: int = 0


UNLIMITED = Capacity()


Sizes = Callable[[], Iterable[int | None]]
"""Tells the batch size of each worker that can be used now, None for those that do not tell it."""


def pool_capacity(sizes: Iterable[int | None], per_worker: PerWorker) -> int:
    """Requests that fit into the workers of these batch sizes; 0 = no limit.

    A worker that does not tell its size has no limit under `auto`, and neither has a pool without workers: its
    requests are refused for that reason, at once, instead of waiting.
    """
    if per_worker == 0:
        return 0
    total = 0
    for size in sizes:
        limit = size if per_worker == "auto" else per_worker
        if not limit:
            return 0
        total += limit
    return total


class PoolsCapacity:
    """Asks both pools, at most every tenth of a second.

    Args:
        context, generation: tell the sizes of the workers that can be used now.
        per_context_worker, per_generation_worker: the limits.
        clock: seconds.
    """

    FRESH_SECONDS = 0.1

    def __init__(
        self,
        context: Sizes,
        generation: Sizes,
        *,
        per_context_worker: PerWorker,
        per_generation_worker: PerWorker,
        clock: Callable[[], float],
    ) -> None:
        self._context = context
        self._generation = generation
        self._per_context_worker = per_context_worker
        self._per_generation_worker = per_generation_worker
        self._clock = clock
        self._known = UNLIMITED
        self._due = float("-inf")

    def __call__(self) -> Capacity:
        """The present capacity."""
        now = self._clock()
        if now >= self._due:
            self._due = now + self.FRESH_SECONDS
            self._known = Capacity(
                pool_capacity(self._context(), self._per_context_worker),
                pool_capacity(self._generation(), self._per_generation_worker),
            )
        return self._known
