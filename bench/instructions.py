"""Instructions of a process tree by `perf stat`, where the machine can count them."""

import contextlib
import math
import shutil
import signal
import subprocess
from functools import cache


@cache
def supported() -> bool:
    """Virtual machines often have no counters; `perf` then says `<not supported>`."""
    if shutil.which("perf") is None:
        return False
    run = subprocess.run(
        ["perf", "stat", "-x", ",", "-e", "instructions", "true"], capture_output=True, text=True, check=False
    )
    return not math.isnan(parse(run.stderr))


def parse(text: str) -> float:
    """Sum of the `instructions` lines of `perf stat -x ,`; NaN when nothing was counted."""
    total = math.nan
    for line in text.splitlines():
        value, _, event = [*line.split(","), "", ""][:3]
        if "instructions" in event and value.strip().isdigit():
            total = (0.0 if math.isnan(total) else total) + int(value)
    return total


class InstructionCount:
    """Counts while the context is open; `total` is NaN where the machine cannot count."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._perf: subprocess.Popen[str] | None = None
        self.total = math.nan

    def __enter__(self) -> "InstructionCount":
        if supported():
            command = ["perf", "stat", "-x", ",", "-e", "instructions", "-p", str(self._pid)]
            self._perf = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._perf is None:
            return
        self._perf.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.total = parse(self._perf.communicate(timeout=10)[1])
        if self._perf.poll() is None:
            self._perf.kill()
