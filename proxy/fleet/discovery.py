"""Discovery of a fleet: the supervisor follows the sources and tells every process."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Any, Protocol

from proxy.config.listed_worker import ListedWorker
from proxy.config.settings import Settings
from proxy.fleet.commands import MemberAnswer
from proxy.fleet.discovered import DISCOVERED, DiscoveredList
from proxy.telemetry.discovery_metrics import discovery_metrics
from proxy.telemetry.gauges import Gauges
from proxy.telemetry.shared import MetricsRow
from proxy.workers.discovery.discovery import Discovery
from proxy.workers.discovery.table import make_sources

_REFRESH_SECONDS = 1.0
_logger = logging.getLogger("proxy.fleet")


class Broadcast(Protocol):
    """`Supervisor.broadcast`."""

    async def __call__(
        self, command: str, arguments: Any, *, keep: str, addresses: Sequence[str]
    ) -> Sequence[MemberAnswer]:
        """See `Member.broadcast`."""
        ...


class FleetDiscovery:
    """Made before the event loop runs, `start`ed in it.

    Args:
        settings: the configuration.
        broadcast: has every process carry a command out.
        row: the supervisor's own metrics.

    Attributes:
        followed: the sources.
    """

    def __init__(self, settings: Settings, broadcast: Broadcast, row: MetricsRow) -> None:
        self._broadcast = broadcast
        self._row = row
        self.followed = Discovery(make_sources(settings), self._take)
        self._gauges = Gauges(row, discovery_metrics(self.followed))
        self._timer: asyncio.TimerHandle | None = None

    async def _take(self, source: str, workers: Sequence[ListedWorker]) -> None:
        found = DiscoveredList(source, tuple(workers))
        answers = await self._broadcast(
            DISCOVERED, found.arguments, keep=found.keep, addresses=found.addresses
        )
        for answer in answers:
            # One that does not run gets the list when it starts.
            if answer.error is not None:
                _logger.warning("process %d did not take a worker list: %s", answer.process, answer.error)

    def start(self) -> None:
        """Begin to follow."""
        self.followed.start()
        self._row.announce(os.getpid(), serves=False)
        self._refresh()

    def _refresh(self) -> None:
        self._gauges.refresh()
        self._timer = asyncio.get_running_loop().call_later(_REFRESH_SECONDS, self._refresh)

    async def close(self) -> None:
        """Stop; the processes keep what they know."""
        if self._timer is not None:
            self._timer.cancel()
        self._row.close()
        await self.followed.close()
