"""Which column of the load table belongs to which worker."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from proxy.config.address import WorkerAddress


class Column(NamedTuple):
    """A column on loan to one address.

    `generation` counts the loans of this column: whoever still holds an older one belongs to a worker that is gone
    and must not write.
    """

    number: int
    generation: int


class ColumnAllocator(Protocol):
    """Hands out columns. In a fleet the supervisor decides, so that all processes agree."""

    def acquire(self, address: WorkerAddress) -> Column:
        """The address's column; the same one until it is released.

        Raises:
            TableFull: no column is free.
        """
        ...

    def release(self, address: WorkerAddress) -> None:
        """This process has no leg on the worker any more and will begin none."""
        ...


class TableFull(Exception):
    """There are more workers than columns."""


class LocalColumns:
    """The allocator of a single process: the lowest free column, so that the columns in use lie close together.

    Args:
        columns: how many there are.
    """

    def __init__(self, columns: int) -> None:
        self._generations = [0] * columns
        self._free: list[int] = []
        self._used = 0
        self._by_address: dict[WorkerAddress, Column] = {}

    def acquire(self, address: WorkerAddress) -> Column:
        """See `ColumnAllocator`."""
        column = self._by_address.get(address)
        if column is None:
            number = self._take()
            self._generations[number] += 1
            column = self._by_address[address] = Column(number, self._generations[number])
        return column

    def release(self, address: WorkerAddress) -> None:
        """See `ColumnAllocator`."""
        column = self._by_address.pop(address, None)
        if column is not None:
            self._free.append(column.number)
            self._free.sort(reverse=True)

    def _take(self) -> int:
        if self._free:
            return self._free.pop()
        if self._used == len(self._generations):
            raise TableFull(f"more than {self._used} workers")
        self._used += 1
        return self._used - 1
