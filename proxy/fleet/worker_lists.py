"""The worker lists as they travel to every process when the configuration has been read again."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.config.address import WorkerAddress
from proxy.config.listed_worker import ListedWorker
from proxy.config.settings import ServerSection, Settings

WORKERS = "workers"
"""The command that carries a `WorkerLists`."""
WORKER = "worker"
"""The command that carries what an operator says of one worker (`proxy.workers.discovery.operator`)."""


class WorkerLists(msgspec.Struct, frozen=True):
    """All keys that list workers: the sections' `urls`, and `proxy.workers`."""

    context: tuple[WorkerAddress, ...]
    generation: tuple[WorkerAddress, ...]
    listed: tuple[ListedWorker, ...]

    @classmethod
    def of(cls, settings: Settings) -> WorkerLists:
        """Those of a configuration."""
        return cls(settings.context_servers.urls, settings.generation_servers.urls, settings.proxy.workers)

    @classmethod
    def read(cls, arguments: Any) -> WorkerLists:
        """From the arguments of the command."""
        return msgspec.convert(arguments, cls)

    @property
    def arguments(self) -> Any:
        """For the command: plain JSON values."""
        return msgspec.to_builtins(self)

    def put_into(self, settings: Settings) -> Settings:
        """A configuration with these lists."""
        return replace(
            settings,
            context_servers=_with_urls(settings.context_servers, self.context),
            generation_servers=_with_urls(settings.generation_servers, self.generation),
            proxy=replace(settings.proxy, workers=self.listed),
        )


def addresses_of(settings: Settings) -> list[str]:
    """Every worker's address once, as text."""
    return list(dict.fromkeys(worker.address.text for worker in settings.workers))


def _with_urls(section: ServerSection, addresses: tuple[WorkerAddress, ...]) -> ServerSection:
    return replace(section, urls=addresses, num_instances=len(addresses))
