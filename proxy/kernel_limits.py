"""What the kernel grants this process, compared with what the configuration may need."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from pathlib import Path

from proxy.config.settings import Settings
from proxy.fleet.listeners import BACKLOG

# Without max_inflight nothing tells how many streams are wanted: below this, some thousand do not fit.
_FEW_FILES = 8192
# Listeners, the event loop, logs, probes, idle connections to some workers.
_FILES_FOR_ITSELF = 256
# The kernel spreads connections over processes by hash: one of them may get twice its share.
_IMBALANCE = 2
_SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


def raise_file_limit() -> int:
    """Allow this process, and those it starts, as many open files as the hard limit does; returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def longest_backlog() -> int | None:
    """Connections that the kernel lets wait per listening socket; None when it does not tell."""
    try:
        return int(_SOMAXCONN.read_text())
    except (OSError, ValueError):
        return None


def files_needed(settings: Settings) -> int:
    """Files that one process may have to open at once; 0 without `max_inflight`, which alone tells.

    A running request has two sockets, that of its client and that of its leg, and a waiting one has the first.
    """
    proxy, processes = settings.proxy, settings.num_workers
    if proxy.max_inflight == 0:
        return 0
    sockets = 2 * proxy.max_inflight + proxy.max_queued
    if processes > 1:
        sockets = min(sockets, math.ceil(sockets * _IMBALANCE / processes))
    return sockets + _FILES_FOR_ITSELF


def limit_warnings(settings: Settings, files: int, backlog: int | None) -> Iterator[str]:
    """Sentences about limits that are too low for `settings`.

    Args:
        settings: the configuration in force.
        files: how many each process may open.
        backlog: see `longest_backlog`.
    """
    needed = files_needed(settings)
    if files < needed:
        yield (
            f"only {files} files can be open at once in each process (ulimit -n), but max_inflight = "
            f"{settings.proxy.max_inflight} and max_queued = {settings.proxy.max_queued} with num_workers = "
            f"{settings.num_workers} may need {needed}"
        )
    elif not needed and files < _FEW_FILES:
        yield f"only {files} files can be open at once; each stream needs two (ulimit -n)"
    if backlog is not None and backlog < BACKLOG:
        yield (
            f"net.core.somaxconn is {backlog}: of a burst of new connections no more can wait, though "
            f"{BACKLOG} are asked for"
        )
