"""The workers that a policy may choose from, in the form it computes with.

Made when the availability of a worker changes and used for every request until the next change. Few workers are
computed with as plain Python numbers, many with numpy: below `FEW` numpy's fixed cost per call is the larger one
(bench/placement.py shows both).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from proxy.config.address import WorkerAddress
    from proxy.placement.load_table import Legs, LoadTable, Tokens
    from proxy.workers.worker import Worker

FEW = 16


def address_seed(address: WorkerAddress) -> int:
    """The 64-bit number that stands for a worker in hashes: the same in every process and on every machine."""
    return int.from_bytes(blake2b(address.text.encode(), digest_size=8).digest(), "little")


class Candidates:
    """Some workers of one pool.

    Args:
        workers: never changed afterwards.
        table: where their load is.

    Attributes:
        few: load and hashes are computed with plain numbers.
        seeds, seed_array: each worker's `address_seed`, as numbers if there are few, else as an array.
    """

    __slots__ = (
        "_by_domain",
        "_columns",
        "_end",
        "_pick",
        "_table",
        "few",
        "positions",
        "seed_array",
        "seeds",
        "size",
        "workers",
    )

    def __init__(self, workers: Sequence[Worker], table: LoadTable) -> None:
        self.workers = workers
        self.size = len(workers)
        self.few = self.size <= FEW
        self.seeds = [worker.seed for worker in workers] if self.few else []
        self.seed_array = np.array([] if self.few else [worker.seed for worker in workers], np.uint64)
        self.positions = {worker.address: position for position, worker in enumerate(workers)}
        self._table = table
        columns = [worker.column for worker in workers]
        self._columns = np.array(columns, np.intp)
        self._end = max(columns, default=-1) + 1
        self._pick = _picker(columns)
        self._by_domain: dict[str, Candidates] | None = None

    def few_legs(self) -> Sequence[int]:
        """Legs in flight on each worker, all processes together, as plain numbers."""
        if self._table.rows == 1:
            return self._pick(self._table.own_legs)
        numbers: list[int] = self.legs().tolist()
        return numbers

    def few_tokens(self) -> Sequence[int]:
        """Estimated prompt tokens in flight on each worker, as plain numbers."""
        if self._table.rows == 1:
            return self._pick(self._table.own_tokens)
        numbers: list[int] = self.tokens().tolist()
        return numbers

    def legs(self) -> Legs:
        """Legs in flight on each worker, all processes together."""
        return self._table.legs_at(self._columns, self._end)

    def tokens(self) -> Tokens:
        """Estimated prompt tokens in flight on each worker."""
        return self._table.tokens_at(self._columns, self._end)

    def legs_on(self, position: int) -> int:
        """Legs in flight on one worker."""
        return self._table.legs_of(self.workers[position].column)

    def without(self, addresses: Iterable[WorkerAddress]) -> Candidates:
        """Those that have none of these addresses; `self` if none has."""
        positions = [self.positions[address] for address in addresses if address in self.positions]
        if not positions:
            return self
        workers = list(self.workers)
        for position in sorted(positions, reverse=True):
            del workers[position]
        return Candidates(workers, self._table)

    def or_else(self, others: Candidates) -> Candidates:
        """These if there are any, else the others."""
        return self if self.size else others

    def in_domain(self, domain: str) -> Candidates | None:
        """Those whose label `domain` has this value; None if none has."""
        if self._by_domain is None:
            groups: dict[str, list[Worker]] = {}
            for worker in self.workers:
                if worker.domain is not None:
                    groups.setdefault(worker.domain, []).append(worker)
            self._by_domain = {name: Candidates(group, self._table) for name, group in groups.items()}
        return self._by_domain.get(domain)


def _picker(columns: Sequence[int]) -> Callable[[Any], Sequence[int]]:
    if len(columns) > FEW or not columns:
        return lambda _row: ()
    if len(columns) == 1:
        column = columns[0]
        return lambda row: (row[column],)
    return itemgetter(*columns)
