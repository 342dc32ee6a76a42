"""Cores to pin to, and a description of the machine in generic words."""

import os
import platform
from collections.abc import Callable
from pathlib import Path


def cores() -> tuple[int, int]:
    """(core of the proxy under test, core of workers, load generator and harness).

    The two are the same on a machine with one core; then only CPU time means anything.
    """
    usable = sorted(os.sched_getaffinity(0))
    return usable[-1], usable[0]


def pinned_to(core: int | set[int]) -> Callable[[], None]:
    """For Popen's `preexec_fn`: the child and all it starts stay on one core, or on some."""
    some = {core} if isinstance(core, int) else core
    return lambda: os.sched_setaffinity(0, some)


def cpu_model() -> str:
    """Model name as the kernel gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def description() -> str:
    """One line: cores, CPU, memory, kernel, Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{len(os.sched_getaffinity(0))} cores of {cpu_model()} ({platform.machine()}), {memory:.0f} GiB, "
        f"Linux {kernel}, Python {platform.python_version()}"
    )


def load_average() -> float:
    """Of the last minute; a run on a busy machine says so."""
    return os.getloadavg()[0]
