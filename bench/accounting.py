"""CPU time and memory of a whole process tree, from the operating system."""

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICK = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stat:
    """What is used of one line of /proc/<pid>/stat; times in seconds."""

    parent: int
    user: float
    system: float

    @property
    def total(self) -> float:
        return self.user + self.system


def parse_stat(line: str) -> Stat:
    """Reads proc(5)'s stat line. Times include children that ended and were waited for.

    The second field is the command in parentheses and may itself hold blanks and parentheses.
    """
    fields = line[line.rindex(")") + 2 :].split()
    user, system, ended_user, ended_system = (int(number) * _TICK for number in fields[11:15])
    return Stat(int(fields[1]), user + ended_user, system + ended_system)


def read_stat(pid: int) -> Stat | None:
    """None when the process is gone."""
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


def descendants(root: int) -> list[int]:
    """`root` and every process below it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit() and (stat := read_stat(int(entry))) is not None:
            children.setdefault(stat.parent, []).append(int(entry))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    return tree


def cpu_seconds(root: int) -> tuple[float, float]:
    """User and system seconds of the tree so far."""
    stats = [stat for pid in descendants(root) if (stat := read_stat(pid)) is not None]
    return sum(stat.user for stat in stats), sum(stat.system for stat in stats)


def parse_status(text: str) -> tuple[int, int]:
    """(resident, peak resident) in KiB out of /proc/<pid>/status; zeros for a zombie."""
    values = dict(line.split(":", 1) for line in text.splitlines() if line.startswith(("VmRSS:", "VmHWM:")))
    resident, peak = (int(values.get(name, "0").split()[0]) for name in ("VmRSS", "VmHWM"))
    return resident, peak


def memory_kib(root: int) -> tuple[int, int]:
    """(resident, peak resident) KiB, summed over the tree."""
    resident = peak = 0
    for pid in descendants(root):
        try:
            now, most = parse_status((_PROC / str(pid) / "status").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
        resident += now
        peak += most
    return resident, peak
