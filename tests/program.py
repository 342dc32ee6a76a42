"""A command of this package in a process of its own, always ended by its test."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SECONDS = 20.0


def eventually(check: Callable[[], Any], seconds: float = SECONDS, what: str = "it") -> Any:
    """Wait until ``check()`` returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (result := check()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.01)
    return result


class Program:
    """One process; its output goes to files, so that a full pipe never stops it."""

    def __init__(
        self,
        *arguments: str,
        directory: Path,
        command: tuple[str, ...] = (sys.executable, "-m", "proxy"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        number = len(list(directory.glob("*.out")))
        self.out_path = directory / f"{number}.out"
        self.err_path = directory / f"{number}.err"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DISAGG_PROXY_")}
        clean["PYTHONPATH"] = str(Path(__file__).parents[1])
        with self.out_path.open("wb") as out, self.err_path.open("wb") as err:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**clean, **(environment or {})},
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self.out_path.read_text()

    @property
    def err(self) -> str:
        return self.err_path.read_text()

    def wait_for(self, pattern: str, seconds: float = SECONDS) -> re.Match[str]:
        """Wait until the output (of either kind) matches."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.out) or re.search(pattern, self.err)
            if found is None and self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.out}{self.err}")
            return found

        match: re.Match[str] = eventually(look, seconds, f"{pattern!r} in the output")
        return match

    def wait(self, seconds: float = SECONDS) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(seconds)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)

    def memory(self) -> int:
        """Resident memory, bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def open_sockets(self) -> int:
        """How many sockets it has open."""
        count = 0
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                count += os.readlink(entry).startswith("socket:")
            except FileNotFoundError:
                continue
        return count
