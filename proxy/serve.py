"""Runs the proxy in this process: the `serve` command."""

from __future__ import annotations

import gc
import logging
import resource

import uvloop

from proxy.app import Application
from proxy.config.settings import Settings
from proxy.downstream.server import ProxyServer, server_config
from proxy.telemetry.logs import configure_logging

# Two sockets per stream: below this, some thousand streams do not fit.
_FEW_FILES = 8192
_logger = logging.getLogger("proxy")


def run_serve(settings: Settings) -> int:
    """Serve until a signal; returns the exit code: 0 after a drain, 1 when the address cannot be bound."""
    configure_logging(
        settings.proxy.log_level, settings.proxy.log_format, access_log=settings.proxy.access_log
    )
    for warning in settings.warnings:
        _logger.warning("%s", warning)
    _raise_file_limit()
    try:
        uvloop.run(serve(settings))
    except SystemExit as stop:  # uvicorn's way to say that the address is taken
        return int(bool(stop.code))
    return 0


async def serve(settings: Settings) -> None:
    """Serve until a signal or `ProxyServer.stop`; for programs that bring their own event loop (uvloop)."""
    await make_server(settings).serve()


def make_server(settings: Settings) -> ProxyServer:
    """A server that is ready to `serve()`; to be called inside the event loop."""
    app = Application(settings)
    config = server_config(settings, app)
    config.load()
    # What exists now lives as long as the process: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    return ProxyServer(config, app, grace=settings.proxy.drain_grace, timeout=settings.proxy.drain_timeout)


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < _FEW_FILES:
        _logger.warning("only %d files can be open at once; each stream needs two (ulimit -n)", hard)
