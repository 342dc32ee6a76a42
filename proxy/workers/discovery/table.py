"""Which class follows which kind of entry of `proxy.discovery`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.config.discovery.entry import SourceEntry
from proxy.config.discovery.file import FileEntry
from proxy.config.settings import Settings
from proxy.workers.discovery.file import FileSource
from proxy.workers.discovery.source import Source

SOURCES: dict[type[SourceEntry], Callable[[Any], Source]] = {FileEntry: FileSource}
"""Each is called with the entry."""


def make_sources(settings: Settings) -> list[Source]:
    """The sources of a configuration, in its order; they do nothing until they are followed."""
    return [SOURCES[type(entry)](entry) for entry in settings.proxy.discovery]
