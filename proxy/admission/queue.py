"""The order of those who wait."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """Someone who waits.

    Attributes:
        size: bytes held meanwhile.
        priority: 0 to 1, higher first.
    """

    size: int
    priority: float


W = TypeVar("W", bound=Waiting)

# Entries of those who left stay in the heap until they come up, unless they are the greater part of it.
_FEW_LEFT_BEHIND = 64


class WaitingQueue(Generic[W]):
    """First come, first served, or by priority and then first come. Leaving early is cheap.

    Args:
        by_priority: look at the priorities.

    Attributes:
        size: bytes that those who wait hold together.
    """

    def __init__(self, *, by_priority: bool) -> None:
        self._by_priority = by_priority
        self._entries: list[tuple[float, int, W]] = []
        self._present: dict[W, int] = {}
        self._number = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._present)

    def __iter__(self) -> Iterator[W]:
        return iter(self._present)

    def add(self, waiting: W) -> None:
        """Let someone wait behind all others of the same or a higher priority."""
        self._number += 1
        rank = -waiting.priority if self._by_priority else 0.0
        heappush(self._entries, (rank, self._number, waiting))
        self._present[waiting] = self._number
        self.size += waiting.size

    def first(self) -> W:
        """Who is next.

        Raises:
            IndexError: nobody waits.
        """
        while self._entries[0][2] not in self._present:
            heappop(self._entries)
        return self._entries[0][2]

    def remove(self, waiting: W) -> bool:
        """Someone leaves; False when they did not wait."""
        if self._present.pop(waiting, None) is None:
            return False
        self.size -= waiting.size
        if len(self._entries) > 2 * len(self._present) + _FEW_LEFT_BEHIND:
            self._entries = [entry for entry in self._entries if entry[2] in self._present]
            heapify(self._entries)
        return True
