"""Entries of worker lists for addresses that a source has found."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping

from proxy.config.address import WorkerAddress
from proxy.config.discovery.role_entry import RoleEntry
from proxy.config.listed_worker import ListedWorker, RoleName

_ROLES: dict[str, tuple[RoleName, ...]] = {
    "context": ("context",),
    "generation": ("generation",),
    "mixed": ("context", "generation"),
}


def list_workers(
    entry: RoleEntry,
    host: str,
    port: int,
    *,
    labels: Mapping[str, str] | None = None,
    draining: bool = False,
) -> Iterator[ListedWorker]:
    """The worker at an address, in each of the entry's roles.

    Args:
        entry: role, model and scheme; its labels win.
        host: a name, or an address in any spelling.
        port, draining: of the worker.
        labels: what the source tells of it.
    """
    address = WorkerAddress(entry.scheme, _host(host), port)
    for role in _ROLES[entry.role]:
        yield ListedWorker(address, role, entry.model, {**(labels or {}), **entry.labels}, draining)


def _host(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.rstrip(".").lower()
