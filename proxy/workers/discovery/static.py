"""The workers of the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from proxy.config.listed_worker import ListedWorker

if TYPE_CHECKING:
    from proxy.config.settings import Settings

STATIC = "configuration"


class StaticSource:
    """See `proxy.workers.discovery.source.Source`. When the configuration is read again its user calls
    `Registry.apply(settings.workers)`."""

    name = STATIC

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def listed(self) -> Sequence[ListedWorker]:
        """See `Source`."""
        return self._settings.workers

    async def changes(self) -> AsyncIterator[Sequence[ListedWorker]]:
        """See `Source`."""
        nothing: tuple[Sequence[ListedWorker], ...] = ()
        for never in nothing:
            yield never
