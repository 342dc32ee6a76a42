"""One process of the fleet as the supervisor sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import proxy
from proxy.fleet.channel import ControlChannel
from proxy.fleet.handover import Handover
from proxy.fleet.restarts import Restarts

Handle = Callable[["Child", str, Any], Any]

# -P: no module of the current directory, which is anywhere, comes before ours.
PROCESS_COMMAND = (sys.executable, "-P", "-m", "proxy.fleet.process")
"""What a process runs; the descriptor of its `Handover` follows."""


class Child:
    """A place in the fleet, filled by one operating system process after the other.

    Args:
        index: the place's number.
        command: what each process runs.

    Attributes:
        index: the place's number.
        restarts: its back-off.
        serving: the present process accepts connections.
        timer: of a start that is due later.
    """

    def __init__(self, index: int, command: Sequence[str] = PROCESS_COMMAND) -> None:
        self.index = index
        self._command = command
        self.restarts = Restarts()
        self.serving = False
        self.timer: asyncio.TimerHandle | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: ControlChannel | None = None
        self._started_at = 0.0
        self._sockets: list[socket.socket] = []

    @property
    def running(self) -> bool:
        """Whether there is a process that has not been seen to end."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Of the present process, 0 without one."""
        return self._process.pid if self._process is not None else 0

    @property
    def channel(self) -> ControlChannel | None:
        """To the present process, as soon as it is connected."""
        return self._channel if self._channel is not None and self._channel.connected else None

    @property
    def sockets(self) -> list[socket.socket]:
        """The listening sockets, kept open while processes come and go."""
        return self._sockets

    def adopt(self, sockets: Iterable[socket.socket]) -> None:
        """Take over listening sockets."""
        self._sockets = list(sockets)

    def close_sockets(self) -> None:
        """Give the listening sockets up: the kernel sends new connections elsewhere once no process has them."""
        for sock in self._sockets:
            sock.close()
        self._sockets = []

    async def start(self, handover: Callable[[int], Handover], handle: Handle) -> None:
        """Start a process and connect to it.

        Args:
            handover: makes what the process gets, given its control descriptor.
            handle: carries out what the process asks for.

        Raises:
            OSError: the system has no room for another process; and what `handover` raises.
        """
        ours, theirs = socket.socketpair()
        self.serving = False
        try:
            self._process = self._launch(handover(theirs.fileno()))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._started_at = monotonic()
        self._channel = ControlChannel(lambda command, body: handle(self, command, body), lambda: None)
        await self._channel.open(ours)

    def _launch(self, contents: Handover) -> subprocess.Popen[bytes]:
        descriptor = contents.write()
        try:
            return subprocess.Popen(  # noqa: S603 - our own interpreter
                [*self._command, str(descriptor)],
                pass_fds=(
                    descriptor,
                    contents.control,
                    contents.load_table,
                    contents.metrics,
                    *contents.listeners,
                ),
                stdin=subprocess.DEVNULL,
                env=_environment(),
                # Ctrl+C reaches the supervisor only, which tells everybody.
                process_group=0,
            )
        finally:
            os.close(descriptor)

    def notify(self, command: str) -> None:
        """Have the process carry a command out, without waiting."""
        if self._channel is not None:
            self._channel.notify(command, {})

    def kill(self) -> None:
        """End the process without mercy."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)

    def reap(self) -> tuple[int, float] | None:
        """When the process has ended: its exit code (negative: a signal) and how many seconds it lived."""
        if self._process is None or self._process.poll() is None:
            return None
        code: int = self._process.returncode
        self._process = None
        self.serving = False
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        return code, monotonic() - self._started_at


def _environment() -> dict[str, str]:
    """Ours, with the place this package was imported from in front."""
    here = str(Path(proxy.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{inherited}" if inherited else here}
