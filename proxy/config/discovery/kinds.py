"""The kinds of sources. Whoever adds one adds its struct here and its class in `proxy.workers.discovery.table`."""

from __future__ import annotations

from proxy.config.discovery.dns import DnsEntry
from proxy.config.discovery.entry import SourceEntry
from proxy.config.discovery.file import FileEntry
from proxy.config.discovery.kubernetes import KubernetesEntry

DiscoveryEntry = FileEntry | DnsEntry | KubernetesEntry
"""The union of all kinds."""

KINDS: dict[str, type[SourceEntry]] = {
    "file": FileEntry,
    "dns": DnsEntry,
    "kubernetes": KubernetesEntry,
}
"""By the value of `type`."""
