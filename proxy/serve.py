"""Runs the proxy: the `serve` command."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal

import uvloop

from proxy.app import Application
from proxy.config.settings import Settings
from proxy.downstream.server import server_config
from proxy.fleet.member import Member, SoleMember
from proxy.fleet.node_id import with_node_id
from proxy.fleet.reload import Reload, reloaded
from proxy.fleet.server import MemberServer
from proxy.fleet.worker_lists import WORKERS, WorkerLists
from proxy.kernel_limits import limit_warnings, longest_backlog, raise_file_limit
from proxy.named_files import check_named_files
from proxy.telemetry.logs import configure_logging
from proxy.telemetry.names import PIECE_GAP_SECONDS
from proxy.telemetry.series import Histogram
from proxy.telemetry.tracing_setup import check_tracing
from proxy.tokenisation.setup import check_tokenizer
from proxy.workers.discovery.table import check_sources

_logger = logging.getLogger("proxy")


def run_serve(settings: Settings, reload: Reload | None = None) -> int:
    """Serve until a signal; returns the exit code: 0 after a drain, 1 when the address cannot be bound.

    Args:
        settings: with `num_workers` above 1 this process becomes the supervisor of as many others.
        reload: what SIGHUP does: the worker lists of its result replace those in force.
    """
    check_named_files(settings.proxy)
    check_tracing(settings)
    check_tokenizer(settings.proxy)
    check_sources(settings)
    configure_logging(
        settings.proxy.log_level, settings.proxy.log_format, access_log=settings.proxy.access_log
    )
    limits = limit_warnings(settings, raise_file_limit(), longest_backlog())
    for warning in (*settings.warnings, *limits):
        _logger.warning("%s", warning)
    if settings.num_workers > 1:
        from proxy.fleet.supervisor import supervise

        return supervise(settings, reload)
    try:
        uvloop.run(serve(settings, reload))
    except SystemExit as stop:
        # uvicorn's way to say that the address is taken or that the application does not start.
        return int(bool(stop.code))
    return 0


async def serve(settings: Settings, reload: Reload | None = None, *, member: Member | None = None) -> None:
    """Serve until a signal or `ProxyServer.stop`; for programs that bring their own event loop (uvloop).

    Args:
        settings, reload: see `run_serve`.
        member: the process's place in its fleet; alone when None.
    """
    member = member if member is not None else SoleMember()
    async with with_node_id(settings) as settings:
        server = make_server(settings, member)
        if reload is not None:
            reloader = _Reloader(settings, reload, member)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.start)
        await server.serve()


def make_server(settings: Settings, member: Member | None = None) -> MemberServer:
    """A server that is ready to `serve()`; to be called inside the event loop."""
    member = member if member is not None else SoleMember()
    app = Application(settings, member)
    gaps = Histogram(member.row, PIECE_GAP_SECONDS)
    config = server_config(settings, app, gaps.observe)
    config.load()
    # What exists now lives as long as the process: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    return MemberServer(
        config, app, member, grace=settings.proxy.drain_grace, timeout=settings.proxy.drain_timeout
    )


class _Reloader:
    """SIGHUP in the only process."""

    def __init__(self, settings: Settings, reload: Reload, member: Member) -> None:
        self._settings = settings
        self._reload = reload
        self._member = member
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Read the configuration again and apply its worker lists."""
        settings = reloaded(self._settings, self._reload)
        if settings is not None:
            self._settings = settings
            task = asyncio.get_running_loop().create_task(self._apply(WorkerLists.of(settings)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _apply(self, lists: WorkerLists) -> None:
        for answer in await self._member.broadcast(WORKERS, lists.arguments):
            if answer.error is not None:
                _logger.error("the worker lists were not taken: %s", answer.error)
