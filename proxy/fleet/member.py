"""What a process knows of its fleet; one that serves alone is the only member of its own, without a supervisor."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from proxy.config.address import WorkerAddress
from proxy.fleet.channel import CALL_TIMEOUT, ControlChannel
from proxy.fleet.columns import FleetColumns, Grant
from proxy.fleet.commands import CommandFailed, ControlCommands, MemberAnswer
from proxy.fleet.handover import Handover
from proxy.fleet.memory import map_memory
from proxy.placement.columns import ColumnAllocator, LocalColumns
from proxy.placement.load_table import LoadTable
from proxy.telemetry.shared import MetricsRow, SharedMetrics

_logger = logging.getLogger("proxy.fleet")
# A little longer than the supervisor waits for each process.
_BROADCAST_TIMEOUT = CALL_TIMEOUT + 5.0
_PREPARE_ATTEMPTS = 5


class Member(Protocol):
    """One process of a fleet, seen from inside.

    Attributes:
        index: its number; also the process part of the request ids and its row of the shared memory.
        processes: how many there are.
        successor: another process had the index before; its clients are waiting.
        commands: what others can ask of it.
        load_table: with the own row set.
        columns: allocator of the load table.
        metrics, row: all counts, and the own ones, open for writing.
        listeners: sockets to serve, or None to open them as configured.
        central: where what a fleet does once registers its commands; None where the supervisor does it.
        orphaned: called when the supervisor has gone; set by the server.
    """

    index: int
    processes: int
    successor: bool
    commands: ControlCommands
    load_table: LoadTable
    columns: ColumnAllocator
    metrics: SharedMetrics
    row: MetricsRow
    listeners: list[socket.socket] | None
    central: ControlCommands | None
    orphaned: Callable[[], None]

    async def open(self) -> None:
        """Begin to take commands; those whose effect lasts have been carried out when this returns."""
        ...

    async def broadcast(
        self, command: str, arguments: Any = None, *, keep: str | None = None, addresses: Sequence[str] = ()
    ) -> list[MemberAnswer]:
        """Have every process carry a command out, this one included.

        Args:
            command: as registered in `commands`; `drain` ends the whole fleet.
            arguments: plain JSON values.
            keep: processes that start later carry out the newest command under this name first (`pause` and
                `resume` share one).
            addresses: of workers that the command may add, as text: each process gets columns for them.

        Returns:
            One answer per process.

        Raises:
            CommandFailed: the supervisor cannot be reached.
        """
        ...

    async def ask_central(self, command: str, arguments: Any = None) -> Any:
        """Have a command of `central` carried out: by the supervisor, or in the process that serves alone.

        Raises:
            CommandFailed: it failed, or the supervisor cannot be reached.
        """
        ...

    async def prepare(self, addresses: Iterable[WorkerAddress]) -> None:
        """Make sure that `columns.acquire` works for these workers, as far as there are columns.

        Raises:
            CommandFailed: the supervisor cannot be reached.
        """
        ...

    def serving(self) -> None:
        """Called by the server when it accepts connections."""
        ...

    def closing(self) -> None:
        """Called by the server when it accepts no more."""
        ...

    def close(self) -> None:
        """The process is about to end."""
        ...


def _nothing() -> None:
    pass


class SoleMember:
    """The process that serves alone: all memory is private, everybody is itself. See `Member`."""

    def __init__(self) -> None:
        self.index = 0
        self.processes = 1
        self.successor = False
        self.commands = ControlCommands()
        self.load_table = LoadTable()
        self.columns: ColumnAllocator = LocalColumns(self.load_table.columns)
        self.metrics = SharedMetrics.private()
        self.row = self.metrics.rows[0]
        self.row.open()
        self.row.announce(os.getpid())
        self.listeners: list[socket.socket] | None = None
        self.central: ControlCommands | None = ControlCommands()
        self.orphaned: Callable[[], None] = _nothing

    async def open(self) -> None:
        """See `Member`."""

    async def broadcast(
        self, command: str, arguments: Any = None, *, keep: str | None = None, addresses: Sequence[str] = ()
    ) -> list[MemberAnswer]:
        """See `Member`."""
        try:
            return [MemberAnswer(0, await self.commands.run(command, arguments))]
        except Exception as error:
            return [MemberAnswer(0, error=f"{type(error).__name__}: {error}")]

    async def ask_central(self, command: str, arguments: Any = None) -> Any:
        """See `Member`."""
        assert self.central is not None  # noqa: S101 - for the type checker
        try:
            return await self.central.run(command, arguments)
        except Exception as error:
            raise CommandFailed(f"{type(error).__name__}: {error}") from error

    async def prepare(self, addresses: Iterable[WorkerAddress]) -> None:
        """See `Member`."""

    def serving(self) -> None:
        """See `Member`."""

    def closing(self) -> None:
        """See `Member`."""

    def close(self) -> None:
        """See `Member`."""


class FleetMember:
    """A process with a supervisor. See `Member`.

    Args:
        handover: from the supervisor; its descriptors belong to this object from now on.
    """

    def __init__(self, handover: Handover) -> None:
        self.index = handover.index
        self.processes = handover.processes
        self.successor = handover.successor
        self.commands = ControlCommands()
        self.load_table = LoadTable(
            rows=handover.processes,
            columns=handover.columns,
            row=handover.index,
            buffer=map_memory(handover.load_table),
        )
        self.metrics = SharedMetrics(map_memory(handover.metrics), metrics_rows(handover.processes))
        self.row = self.metrics.rows[handover.index]
        self.row.open()
        for descriptor in (handover.load_table, handover.metrics):
            os.close(descriptor)
        self.listeners: list[socket.socket] | None = [
            socket.socket(fileno=number) for number in handover.listeners
        ]
        self.central: ControlCommands | None = None
        self.orphaned: Callable[[], None] = _nothing
        self._kept = handover.kept
        self._control = socket.socket(fileno=handover.control)
        self._channel = ControlChannel(self._handle, self._lost)
        self._columns = FleetColumns(handover.grants, self._release_column)
        self.columns: ColumnAllocator = self._columns

    async def open(self) -> None:
        """See `Member`."""
        for kept in self._kept:
            try:
                await self.commands.run(kept.command, kept.arguments)
            except Exception:
                # Serving without it is better than not serving at all.
                _logger.exception("the command %s could not be carried out again", kept.command)
        await self._channel.open(self._control)

    async def broadcast(
        self, command: str, arguments: Any = None, *, keep: str | None = None, addresses: Sequence[str] = ()
    ) -> list[MemberAnswer]:
        """See `Member`."""
        body = {"command": command, "arguments": arguments, "keep": keep, "addresses": addresses}
        answers = await self._channel.call("broadcast", body, seconds=_BROADCAST_TIMEOUT)
        return msgspec.convert(answers, list[MemberAnswer])

    async def ask_central(self, command: str, arguments: Any = None) -> Any:
        """See `Member`."""
        return await self._channel.call("central", {"command": command, "arguments": arguments})

    async def prepare(self, addresses: Iterable[WorkerAddress]) -> None:
        """See `Member`."""
        wanted = list(addresses)
        # While the supervisor is asked, the last leg of a worker that drains may end, and its column is given back.
        for _ in range(_PREPARE_ATTEMPTS):
            missing = self._columns.missing(wanted)
            if not missing:
                return
            self._granted(await self._channel.call("columns", missing))

    def serving(self) -> None:
        """See `Member`."""
        self.row.announce(os.getpid())
        self._channel.notify("serving")

    def closing(self) -> None:
        """See `Member`."""
        self._channel.notify("closing")

    def close(self) -> None:
        """See `Member`."""
        self.row.close()

    async def _handle(self, command: str, body: Any) -> Any:
        """From the supervisor: a command for this process, with grants that it needs."""
        self._granted(body.get("grants") or {})
        return await self.commands.run(command, body.get("arguments"))

    def _granted(self, grants: Any) -> None:
        self._columns.granted(msgspec.convert(grants, dict[str, Grant]))

    def _release_column(self, address: str, serial: int) -> None:
        self._channel.notify("release", [address, serial])

    def _lost(self) -> None:
        self.orphaned()


def metrics_rows(processes: int) -> int:
    """Rows of the metrics memory: the processes' by their numbers, and the supervisor's own behind them."""
    return processes + 1
