"""What a source of worker lists is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from proxy.config.listed_worker import ListedWorker


class Source(Protocol):
    """Tells which workers there are: always the whole list, never differences, so that a lost message heals.

    Attributes:
        name: for logs; unique among the sources of a registry.
    """

    name: str

    def listed(self) -> Sequence[ListedWorker]:
        """What is known at start, without waiting; may be empty."""
        ...

    def changes(self) -> AsyncIterator[Sequence[ListedWorker]]:
        """The whole list each time it changes. Ends when there will be no more changes.

        Raises:
            Exception: the source is lost; the registry keeps the last list and asks again a little later.
        """
        ...
