"""Child processes of a measurement: pinned, spoken to in JSON lines, always ended by their own id."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.machine import pinned_to

ROOT = Path(__file__).resolve().parent.parent


class ChildError(Exception):
    """A child ended, did not answer, or answered that it failed."""


class Child:
    """One child process on one core (or some); its output is kept for the error message."""

    def __init__(
        self,
        command: Sequence[str],
        core: int | set[int],
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path = ROOT,
        talks: bool = False,
    ) -> None:
        """`talks`: standard input and output carry JSON lines; else the output goes to the log."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talks else self._log,
            stderr=self._log,
            env={**os.environ, **(environment or {})},
            cwd=directory,
            preexec_fn=pinned_to(core),
            # Ended as a group: a server's own children do not outlive it.
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def log_tail(self, size: int = 1500) -> str:
        """End of what it printed."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - size))
        return self._log.read().decode(errors="replace").strip()

    def read(self, timeout: float = 300.0) -> dict[str, Any]:
        """Its next JSON line. Raises ChildError."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise ChildError(f"no answer from {self._process.args!r}: {self.log_tail()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise ChildError(str(answer["failed"]))
        return answer

    def ask(self, op: str, patience: float = 300.0, **options: object) -> dict[str, Any]:
        """Send one order, wait for its answer. Raises ChildError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **options}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ChildError(f"child ended: {self.log_tail()}") from error
        return self.read(patience)

    def stop(self) -> None:
        """End it: end of input, then SIGTERM, then SIGKILL to its group; nothing waits for a graceful drain."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._wait(2.0)
        for number, patience in ((signal.SIGTERM, 0.5), (signal.SIGKILL, 10.0)):
            if self.alive:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, number)
                self._wait(patience)
        # Workers of a server whose master is gone already.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _wait(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def wait_for_port(port: int, child: Child, seconds: float = 60.0) -> None:
    """Until something listens on loopback. Raises ChildError when the child ends first."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if not child.alive:
            raise ChildError(f"ended at start: {child.log_tail()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.05)
    raise ChildError(f"does not listen after {seconds:.0f} s: {child.log_tail()}")


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
