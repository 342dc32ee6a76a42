"""Reading the configuration again (SIGHUP): what of it is used, and what is said about the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable

from proxy.config.errors import ConfigError
from proxy.config.reload import changes_for_restart
from proxy.config.settings import Settings
from proxy.fleet.worker_lists import WorkerLists

Reload = Callable[[], Settings]
"""Reads the configuration again; raises `ConfigError`."""

_logger = logging.getLogger("proxy")


def reloaded(current: Settings, reload: Reload) -> Settings | None:
    """The configuration in force with the worker lists read anew; None, and a line in the log, when it is broken."""
    try:
        new = reload()
    except ConfigError as error:
        _logger.error("the configuration was read again and is not used: %s", error)
        return None
    settings = WorkerLists.of(new).put_into(current)
    for warning in new.warnings:
        _logger.warning("%s", warning)
    waiting = changes_for_restart(current, new)
    if waiting:
        _logger.warning("these keys changed and take effect at the next start: %s", ", ".join(waiting))
    _logger.info("the configuration was read again: %d workers", len(settings.workers))
    return settings
