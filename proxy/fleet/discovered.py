"""The list of one source of workers as it travels to every process."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.config.listed_worker import ListedWorker

DISCOVERED = "discovered"
"""The command that carries a `DiscoveredList`; lists of other sources stay. Whoever broadcasts it, with `keep` and
`addresses` of the list, gives it to the whole fleet, processes that start later included."""


class DiscoveredList(msgspec.Struct, frozen=True):
    """All workers that a source knows.

    Attributes:
        source: its name; the list replaces the one of the same name.
        workers: may be empty.
    """

    source: str
    workers: tuple[ListedWorker, ...]

    @classmethod
    def read(cls, arguments: Any) -> DiscoveredList:
        """From the arguments of the command."""
        return msgspec.convert(arguments, cls)

    @property
    def arguments(self) -> Any:
        """For the command: plain JSON values."""
        return msgspec.to_builtins(self)

    @property
    def keep(self) -> str:
        """Under which name the newest list is kept."""
        return f"{DISCOVERED} {self.source}"

    @property
    def addresses(self) -> list[str]:
        """Every worker's address once, as text."""
        return list(dict.fromkeys(worker.address.text for worker in self.workers))
