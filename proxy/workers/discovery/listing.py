"""Entries of worker lists for addresses that a source has found."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.config.discovery.role_entry import RoleEntry
from proxy.config.listed_worker import ListedWorker, RoleName

_IPV6 = 6
_logger = logging.getLogger("proxy.discovery")
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
    """The worker at an address, in each of the entry's roles; none, and a line in the log, where nothing can listen.

    Args:
        entry: role, model and scheme; its labels win.
        host: a name, or an address in any spelling.
        port, draining: of the worker.
        labels: what the source tells of it.
    """
    address = _address(entry.scheme, host, port)
    if address is None:
        _logger.warning("%s tells a worker that is ignored: %r is no host", entry.name, host)
        return
    for role in _ROLES[entry.role]:
        yield ListedWorker(address, role, entry.model, {**(labels or {}), **entry.labels}, draining)


@lru_cache(maxsize=16384)
def _address(scheme: str, host: str, port: int) -> WorkerAddress | None:
    try:
        text = f"[{host}]" if ipaddress.ip_address(host).version == _IPV6 else host
    except ValueError:
        text = host.rstrip(".")
    try:
        return parse_worker_address(f"{scheme}://{text}:{port}")
    except ValueError:
        return None
