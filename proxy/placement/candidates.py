"""The workers that a policy may choose from, in the form it computes with.

Made when the availability of a worker changes and used for every request until the next change. Few workers are
computed with as plain Python numbers, many with numpy: below `FEW` numpy's fixed cost per call is the larger one
(bench/placement.py shows both).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from proxy.config.address import WorkerAddress
    from proxy.placement.load_table import Legs, LoadTable, Tokens
    from proxy.workers.worker import Worker

Columns = npt.NDArray[np.intp]

FEW = 16
# As many workers as this, times itself, are kept in mind.
_REMEMBERED = 128


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
        "_positions",
        "_table",
        "_without",
        "few",
        "seed_array",
        "seeds",
        "size",
        "workers",
    )

    def __init__(self, workers: Sequence[Worker], table: LoadTable) -> None:
        columns = np.array([worker.column for worker in workers], np.intp)
        seeds = np.array([worker.seed for worker in workers], np.uint64)
        self._fill(workers, table, columns, seeds)

    def _fill(
        self, workers: Sequence[Worker], table: LoadTable, columns: Columns, seeds: npt.NDArray[np.uint64]
    ) -> None:
        self.workers = workers
        self.size = len(workers)
        self.few = self.size <= FEW
        self.seeds: list[int] = seeds.tolist() if self.few else []
        self.seed_array = seeds
        self._table = table
        self._columns = columns
        self._end = int(columns.max()) + 1 if self.size else 0
        self._pick = _picker(columns.tolist() if self.few else [])
        self._positions: dict[WorkerAddress, int] | None = None
        self._by_domain: dict[str, Candidates] | None = None
        self._without: dict[WorkerAddress, Candidates] = {}

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

    def without(self, addresses: Collection[WorkerAddress]) -> Candidates:
        """Those that have none of these addresses; `self` if none has."""
        if self._positions is None:
            self._positions = {worker.address: position for position, worker in enumerate(self.workers)}
        # A worker may have failed a request more than once.
        positions = {self._positions[address] for address in addresses if address in self._positions}
        if not positions:
            return self
        if len(positions) > 1 or self.size > _REMEMBERED:
            return self._remove(positions)
        # Where workers are listed in both roles every generation leg leaves one of them out.
        address = self.workers[next(iter(positions))].address
        rest = self._without.get(address)
        if rest is None:
            rest = self._without[address] = self._remove(positions)
        return rest

    def _remove(self, positions: Collection[int]) -> Candidates:
        workers = list(self.workers)
        columns, seeds = self._columns, self.seed_array
        for position in sorted(positions, reverse=True):
            del workers[position]
            # numpy.delete costs several times as much.
            columns = np.concatenate((columns[:position], columns[position + 1 :]))
            seeds = np.concatenate((seeds[:position], seeds[position + 1 :]))
        rest = Candidates.__new__(Candidates)
        rest._fill(workers, self._table, columns, seeds)
        return rest

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
    if not columns:
        return lambda _row: ()
    if len(columns) == 1:
        column = columns[0]
        return lambda row: (row[column],)
    return itemgetter(*columns)
