"""Which class follows which kind of entry of `proxy.discovery`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from proxy.config.discovery.dns import DnsEntry
from proxy.config.discovery.entry import SourceEntry
from proxy.config.discovery.file import FileEntry
from proxy.config.discovery.kubernetes import KubernetesEntry
from proxy.config.errors import ConfigError
from proxy.config.settings import Settings
from proxy.workers.discovery.file import FileSource
from proxy.workers.discovery.kubernetes import KubernetesSource
from proxy.workers.discovery.registration_sources import registration_sources
from proxy.workers.discovery.source import Source


def _dns(entry: DnsEntry) -> Source:
    from proxy.workers.discovery.dns import DnsSource

    return DnsSource(entry)


SOURCES: dict[type[SourceEntry], Callable[[Any], Source]] = {
    FileEntry: FileSource,
    DnsEntry: _dns,
    KubernetesEntry: KubernetesSource,
}
"""Each is called with the entry; what only an extra brings is imported then."""


def make_sources(settings: Settings) -> list[Source]:
    """The sources of a configuration, in its order; they do nothing until they are followed.

    Raises:
        ConfigError: a file that the configuration names for them cannot be used.
    """
    own = [SOURCES[type(entry)](entry) for entry in settings.proxy.discovery]
    return [*own, *registration_sources(settings)]


def check_sources(settings: Settings) -> None:
    """Raise `ConfigError` when a source needs an extra that is not installed."""
    if any(isinstance(entry, DnsEntry) for entry in settings.proxy.discovery) and find_spec("dns") is None:
        problem = "type: dns needs the extra dns: pip install 'disagg-proxy[dns]'"
        raise ConfigError(problem, key="proxy.discovery")
