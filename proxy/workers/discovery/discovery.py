"""All sources of workers of one proxy, followed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from proxy.workers.discovery.follower import Follower, SourceStatus, Take
from proxy.workers.discovery.source import Commanded, Handler, Source

DISCOVERY = "discovery"
"""The command that asks how the sources are."""


class Discovery:
    """Runs once per fleet: in the supervisor, or in the process that serves alone.

    Args:
        sources: to follow.
        take: gets their lists.
        clock: seconds, monotonic.
    """

    def __init__(
        self, sources: Iterable[Source], take: Take, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sources = list(sources)
        self._followers = [Follower(source, take, clock=clock) for source in self._sources]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def statuses(self) -> list[SourceStatus]:
        """One per source."""
        return [follower.status for follower in self._followers]

    @property
    def commands(self) -> dict[str, Handler]:
        """What can be asked where the sources are followed (`Member.ask_central`), by the command's name."""
        commands: dict[str, Handler] = {DISCOVERY: self.tell}
        for source in self._sources:
            if isinstance(source, Commanded):
                commands.update(source.commands)
        return commands

    async def tell(self, _arguments: Any = None) -> list[Any]:
        """The command `discovery`: the statuses as plain JSON values."""
        return [msgspec.structs.asdict(status) for status in self.statuses]

    def start(self) -> None:
        """Begin to follow; to be called inside the event loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(follower.run()) for follower in self._followers]

    async def close(self) -> None:
        """Stop; the lists stay as they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
