"""Which process holds which column of the load table: the supervisor's book, and each process's copy of its page."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable

import msgspec

from proxy.config.address import WorkerAddress
from proxy.placement.columns import Column, TableFull


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """A column lent to one process; `number` and `generation` as in `Column`.

    `serial` is new for each grant. A release names it: one that crossed with a newer grant of the same column is void.
    """

    number: int
    generation: int
    serial: int


class _Loan(msgspec.Struct):
    number: int
    generation: int
    holders: dict[int, int]  # process -> serial of its newest grant


class ColumnBook:
    """A column belongs to one address as long as any process holds it, and only then can go to another one.

    Pure: the supervisor carries the messages.

    Args:
        columns: how many the table has.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._used = 0
        self._free: list[int] = []
        self._generations: dict[int, int] = {}
        self._serials = itertools.count(1)
        self._loans: dict[str, _Loan] = {}

    def grant(self, process: int, address: str) -> Grant:
        """Lend a process the column of an address, the lowest free one if it has none.

        Raises:
            TableFull: no column is free.
        """
        loan = self._loans.get(address)
        if loan is None:
            number = self._take()
            self._generations[number] = self._generations.get(number, 0) + 1
            loan = self._loans[address] = _Loan(number, self._generations[number], {})
        serial = next(self._serials)
        loan.holders[process] = serial
        return Grant(loan.number, loan.generation, serial)

    def release(self, process: int, address: str, serial: int) -> None:
        """A process gives a column back; does nothing if it got a newer grant meanwhile."""
        loan = self._loans.get(address)
        if loan is not None and loan.holders.get(process) == serial:
            self._drop(process, address, loan)

    def forget(self, process: int) -> None:
        """A process has ended and holds nothing any more (its row is cleared)."""
        for address, loan in list(self._loans.items()):
            if process in loan.holders:
                self._drop(process, address, loan)

    def _drop(self, process: int, address: str, loan: _Loan) -> None:
        del loan.holders[process]
        if not loan.holders:
            del self._loans[address]
            heapq.heappush(self._free, loan.number)

    def _take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        if self._used == self._columns:
            raise TableFull(f"more than {self._columns} workers")
        self._used += 1
        return self._used - 1


class FleetColumns:
    """A process's allocator (`proxy.placement.columns.ColumnAllocator`): hands out what the supervisor has granted.

    Args:
        grants: of the start, by the address's text.
        tell_release: takes address and serial to the supervisor.
    """

    def __init__(self, grants: dict[str, Grant], tell_release: Callable[[str, int], None]) -> None:
        self._grants = dict(grants)
        self._tell_release = tell_release

    def missing(self, addresses: Iterable[WorkerAddress]) -> list[str]:
        """The addresses for which a grant must be fetched before they can be acquired."""
        return [address.text for address in addresses if address.text not in self._grants]

    def granted(self, grants: dict[str, Grant]) -> None:
        """More grants, or newer ones, have come."""
        self._grants |= grants

    def acquire(self, address: WorkerAddress) -> Column:
        """See `ColumnAllocator`."""
        grant = self._grants.get(address.text)
        if grant is None:
            raise TableFull(f"no column was granted for {address.text}")
        return Column(grant.number, grant.generation)

    def release(self, address: WorkerAddress) -> None:
        """See `ColumnAllocator`."""
        grant = self._grants.pop(address.text, None)
        if grant is not None:
            self._tell_release(address.text, grant.serial)
