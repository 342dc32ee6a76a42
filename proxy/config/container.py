"""Tells whether the process runs inside a container, where a loopback address reaches nobody."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping

CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
"""Files that Docker and Podman create in every container."""


def runs_in_container(environ: Mapping[str, str], marks: Iterable[str] = CONTAINER_MARKS) -> bool:
    """Return true when Kubernetes' variables or a container engine's mark are present."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) or any(map(os.path.exists, marks))


def is_loopback(hostname: str) -> bool:
    """Return true for `localhost` and for addresses that only this machine reaches."""
    if hostname.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(hostname).is_loopback
    except ValueError:
        return False
