"""The supervisor: starts the processes of a fleet, keeps them running, and ends them. It serves no requests itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterable, Sequence
from typing import Any

from proxy.config.settings import Settings
from proxy.fleet.child import PROCESS_COMMAND, Child
from proxy.fleet.columns import ColumnBook, Grant
from proxy.fleet.commands import CommandFailed, ControlCommands, MemberAnswer
from proxy.fleet.discovered import DISCOVERED
from proxy.fleet.discovery import FleetDiscovery
from proxy.fleet.handover import Handover, KeptCommand, for_a_process
from proxy.fleet.listeners import Listeners
from proxy.fleet.member import metrics_rows
from proxy.fleet.memory import create_memory, map_memory
from proxy.fleet.node_id import with_node_id
from proxy.fleet.reload import Reload, reloaded
from proxy.fleet.worker_lists import WORKER, WORKERS, WorkerLists, addresses_of
from proxy.placement.columns import TableFull
from proxy.placement.load_table import DEFAULT_COLUMNS, LoadTable
from proxy.telemetry.names import PROCESS_RESTARTS
from proxy.telemetry.series import Counter
from proxy.telemetry.shared import SharedMetrics

# Beyond its own time-outs, a process gets this long before it is killed.
_MERCY_SECONDS = 10.0
# A fleet of which no process ever served after as many starts each is not going to.
_STARTS_IN_VAIN = 4
_CHANGES_OF_WORKERS = frozenset({WORKERS, WORKER, DISCOVERED})
_logger = logging.getLogger("proxy.fleet")


def supervise(settings: Settings, reload: Reload | None) -> int:
    """Run `settings.num_workers` processes until a signal.

    Args:
        settings: the configuration; a missing `node_id` is chosen here, for all processes.
        reload: what SIGHUP does.

    Returns:
        The exit code: 0 after a drain, 1 when the address cannot be bound or no process can serve.
    """
    try:
        listeners = Listeners(settings.hostname, settings.port)
    except OSError as error:
        _logger.error("%s", error)
        return 1
    return asyncio.run(_supervise(settings, reload, listeners))


async def _supervise(settings: Settings, reload: Reload | None, listeners: Listeners) -> int:
    async with with_node_id(settings) as complete:
        return await Supervisor(complete, reload, listeners).run()


class Supervisor:
    """See the module's docstring.

    Signals: SIGTERM and SIGINT drain, the second one hurries; SIGHUP reads the configuration again.

    Args:
        settings: with a `node_id`.
        reload: see `supervise`.
        listeners: opens the sockets of the processes.
        command: what each process runs.

    Attributes:
        processes: one per index, for the supervisor's whole life.
        central: commands of what the fleet does once; see `Member.ask_central`.
    """

    def __init__(
        self,
        settings: Settings,
        reload: Reload | None,
        listeners: Listeners,
        command: Sequence[str] = PROCESS_COMMAND,
    ) -> None:
        self._settings = settings
        self._reload = reload
        self._listeners = listeners
        count = settings.num_workers
        self.processes = [Child(index, command) for index in range(count)]
        self._load_memory = create_memory("disagg-proxy-load", LoadTable.bytes_needed(count, DEFAULT_COLUMNS))
        self._load_table = LoadTable(
            rows=count, columns=DEFAULT_COLUMNS, buffer=map_memory(self._load_memory)
        )
        self._metrics_memory = create_memory("disagg-proxy-metrics", SharedMetrics.size(metrics_rows(count)))
        self._metrics = SharedMetrics(map_memory(self._metrics_memory), metrics_rows(count))
        self._restart_counter = Counter(self._metrics.rows[count], PROCESS_RESTARTS)
        self._columns = ColumnBook(DEFAULT_COLUMNS)
        self._kept: dict[str, KeptCommand] = {}
        self._draining = asyncio.Event()
        self._ever_served = False
        self._exit_code = 0
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing_workers = asyncio.Lock()
        self._discovery = FleetDiscovery(settings, self.broadcast, self._metrics.rows[count])
        self.central = ControlCommands()
        for name, handler in self._discovery.followed.commands.items():
            self.central.register(name, handler)

    async def run(self) -> int:
        """Run until all processes have ended after a signal; returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        _logger.info(
            "listening on %s port %d with %d processes",
            self._settings.hostname,
            self._listeners.port,
            len(self.processes),
        )
        self._discovery.start()
        await asyncio.gather(*map(self._start, self.processes))
        await self._ended.wait()
        await self._discovery.close()
        _logger.info("all processes have ended")
        for descriptor in (self._load_memory, self._metrics_memory):
            os.close(descriptor)
        return self._exit_code

    # Processes

    async def _start(self, child: Child) -> None:
        child.timer = None
        if self._draining.is_set():
            return
        successor = child.restarts.young_deaths > 0 or self._ever_served
        settings, kept = self._settings, dict(self._kept)
        try:
            if not child.sockets:
                child.adopt(self._listeners.open())
            await child.start(lambda control: self._handover(child, control, successor), self._handle)
        except OSError as error:
            self._columns.forget(child.index)
            _logger.error("process %d cannot be started: %s", child.index, error)
            self._start_later(child, 0.0)
            return
        _logger.info("process %d has started (pid %d)", child.index, child.pid)
        if self._draining.is_set():
            child.notify("drain")
        await self._catch_up(child, settings, kept)

    async def _catch_up(self, child: Child, settings: Settings, kept: dict[str, KeptCommand]) -> None:
        """What has changed while the process had been given this and was not connected yet."""
        async with self._changing_workers:
            if self._settings is not settings:
                lists = WorkerLists.of(self._settings)
                await self._ask(child, WORKERS, lists.arguments, addresses_of(self._settings))
            for name, each in list(self._kept.items()):
                if kept.get(name) is not each:
                    await self._ask(child, each.command, each.arguments, each.addresses)

    def _handover(self, child: Child, control: int, successor: bool) -> Handover:
        return Handover(
            index=child.index,
            processes=len(self.processes),
            settings=for_a_process(self._settings),
            control=control,
            listeners=tuple(sock.fileno() for sock in child.sockets),
            load_table=self._load_memory,
            metrics=self._metrics_memory,
            columns=DEFAULT_COLUMNS,
            grants=self._grants(child, self._addresses()),
            kept=tuple(self._kept.values()),
            successor=successor,
        )

    def _reap(self) -> None:
        for child in self.processes:
            ended = child.reap()
            if ended is not None:
                self._child_ended(child, *ended)

    def _child_ended(self, child: Child, code: int, lived: float) -> None:
        # Nobody writes there any more, and the successor begins without legs.
        self._load_table.clear_row(child.index)
        self._metrics.rows[child.index].close()
        self._columns.forget(child.index)
        if self._draining.is_set():
            _logger.info("process %d has ended (%s)", child.index, _how(code))
            child.close_sockets()
            self._end_if_all_have()
            return
        self._restart_counter.add(1, (str(child.index),))
        _logger.error("process %d ended unasked after %.1f s (%s)", child.index, lived, _how(code))
        self._start_later(child, lived)

    def _start_later(self, child: Child, lived: float) -> None:
        if self._draining.is_set():
            child.close_sockets()
            self._end_if_all_have()
            return
        delay = child.restarts.delay(lived)
        if not child.restarts.keeps_port:
            child.close_sockets()
        if not self._ever_served and all(
            each.restarts.young_deaths >= _STARTS_IN_VAIN for each in self.processes
        ):
            _logger.error("no process can serve: giving up")
            self._exit_code = 1
            self.drain()
            return
        if delay:
            _logger.warning(
                "process %d keeps ending: it is started again in %g s%s",
                child.index,
                delay,
                "" if child.sockets else ", and the other processes serve its share",
            )
        loop = asyncio.get_running_loop()
        child.timer = loop.call_later(delay, lambda: self._spawn(self._start(child)))

    def _end_if_all_have(self) -> None:
        if not any(child.running for child in self.processes):
            self._ended.set()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Signals

    def _signalled(self) -> None:
        if self._draining.is_set():
            self.hurry()
        else:
            self.drain()

    def drain(self) -> None:
        """Have all processes finish what they do and end, then end; does nothing the second time."""
        if self._draining.is_set():
            return
        self._draining.set()
        _logger.info("draining all processes")
        for child in self.processes:
            if child.timer is not None:
                child.timer.cancel()
            if child.running:
                child.notify("drain")
            else:
                child.close_sockets()
        proxy = self._settings.proxy
        self._kill_after(proxy.drain_grace + proxy.drain_timeout + _MERCY_SECONDS)
        self._end_if_all_have()

    def hurry(self) -> None:
        """Drain without waiting any longer."""
        self.drain()
        _logger.warning("in a hurry: all processes cut off what still runs")
        for child in self.processes:
            child.notify("hurry")
        self._kill_after(_MERCY_SECONDS)

    def _kill_after(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._kill)

    def _kill(self) -> None:
        for child in self.processes:
            if child.running:
                _logger.error("process %d does not end: killing it", child.index)
                child.kill()

    def reload(self) -> None:
        """Read the configuration again and give its worker lists to all processes."""
        if self._reload is None or self._draining.is_set():
            return
        settings = reloaded(self._settings, self._reload)
        if settings is not None:
            self._spawn(self._change_workers(WorkerLists.of(settings)))

    async def _change_workers(self, lists: WorkerLists) -> None:
        for answer in await self.broadcast(WORKERS, lists.arguments):
            if answer.error is not None:
                _logger.error("process %d did not take the worker lists: %s", answer.process, answer.error)

    # Control

    async def _handle(self, child: Child, command: str, body: Any) -> Any:
        """What a process tells or asks."""
        if command == "serving":
            child.serving = True
            self._ever_served = True
            _logger.info("process %d serves", child.index)
        elif command == "closing":
            # Connections that came to our copies would wait until the process has finished what it does.
            child.close_sockets()
        elif command == "columns":
            return self._grants(child, body)
        elif command == "release":
            address, serial = body
            self._columns.release(child.index, address, serial)
        elif command == "broadcast":
            return await self.broadcast(
                body["command"],
                body.get("arguments"),
                keep=body.get("keep"),
                addresses=body.get("addresses") or (),
            )
        elif command == "central":
            return await self.central.run(body["command"], body.get("arguments"))
        else:
            raise CommandFailed(f"there is no command {command}")
        return None

    async def broadcast(
        self, command: str, arguments: Any = None, *, keep: str | None = None, addresses: Sequence[str] = ()
    ) -> list[MemberAnswer]:
        """Have every process carry a command out; see `Member.broadcast`."""
        if command in ("drain", "hurry"):
            # Processes that end must not be started again.
            self.drain() if command == "drain" else self.hurry()
            return [MemberAnswer(child.index) for child in self.processes]
        if command not in _CHANGES_OF_WORKERS:
            self._keep(keep, command, arguments)
            return await self._fan_out(command, arguments)
        # One change after the other, so that all processes end with the same lists.
        async with self._changing_workers:
            self._keep(keep, command, arguments, addresses)
            if command == WORKERS:
                self._settings = WorkerLists.read(arguments).put_into(self._settings)
                addresses = addresses_of(self._settings)
            return await self._fan_out(command, arguments, addresses)

    def _keep(self, keep: str | None, command: str, arguments: Any, addresses: Sequence[str] = ()) -> None:
        if keep is not None:
            self._kept[keep] = KeptCommand(command, arguments, tuple(addresses))

    async def _fan_out(
        self, command: str, arguments: Any, addresses: Sequence[str] = ()
    ) -> list[MemberAnswer]:
        return list(
            await asyncio.gather(
                *(self._ask(child, command, arguments, addresses) for child in self.processes)
            )
        )

    async def _ask(
        self, child: Child, command: str, arguments: Any, addresses: Sequence[str] = ()
    ) -> MemberAnswer:
        try:
            if child.channel is None:
                raise CommandFailed("the process is not running")
            grants = self._grants(child, addresses)
            result = await child.channel.call(command, {"arguments": arguments, "grants": grants})
        except CommandFailed as error:
            return MemberAnswer(child.index, error=str(error))
        return MemberAnswer(child.index, result)

    def _addresses(self) -> list[str]:
        """All workers that a process may need when it starts."""
        kept = (address for each in self._kept.values() for address in each.addresses)
        return [*addresses_of(self._settings), *kept]

    def _grants(self, child: Child, addresses: Iterable[str]) -> dict[str, Grant]:
        """As far as there are columns: a process ignores a worker without one, and says so."""
        grants = {}
        for address in addresses:
            with contextlib.suppress(TableFull):
                grants[address] = self._columns.grant(child.index, address)
        return grants


def _how(code: int) -> str:
    """An exit code of `subprocess` in words."""
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name
