"""The worker lists as they travel to every process when the configuration has been read again."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.config.settings import ServerSection, Settings

WORKERS = "workers"
"""The command that carries a `WorkerLists`."""


class WorkerLists(msgspec.Struct, frozen=True):
    """The addresses of each role, as text."""

    context: tuple[str, ...]
    generation: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings) -> WorkerLists:
        """Those of a configuration."""
        return cls(
            tuple(address.text for address in settings.context_servers.urls),
            tuple(address.text for address in settings.generation_servers.urls),
        )

    @classmethod
    def read(cls, arguments: Any) -> WorkerLists:
        """From the arguments of the command."""
        return msgspec.convert(arguments, cls)

    @property
    def arguments(self) -> dict[str, list[str]]:
        """For the command."""
        return {"context": list(self.context), "generation": list(self.generation)}

    def put_into(self, settings: Settings) -> Settings:
        """A configuration with these lists."""
        return replace(
            settings,
            context_servers=_with_urls(settings.context_servers, self.context),
            generation_servers=_with_urls(settings.generation_servers, self.generation),
        )

    @property
    def all(self) -> list[str]:
        """Every address once."""
        return list(dict.fromkeys((*self.context, *self.generation)))


def parsed(addresses: tuple[str, ...]) -> tuple[WorkerAddress, ...]:
    """Back to addresses."""
    return tuple(map(parse_worker_address, addresses))


def _with_urls(section: ServerSection, addresses: tuple[str, ...]) -> ServerSection:
    return replace(section, urls=parsed(addresses), num_instances=len(addresses))
