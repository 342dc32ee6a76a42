"""The shared memory of a running fleet, seen from outside: what each process counts."""

import mmap
import os
from math import isnan
from pathlib import Path

from fleet_stack import FleetStack

from proxy.fleet.member import metrics_rows
from proxy.fleet.memory import map_memory
from proxy.placement.load_table import DEFAULT_COLUMNS, LoadTable
from proxy.telemetry.shared import SharedMetrics

# Gauges that are zero when nothing runs, as families of the metrics, and the counts that admission shares.
IDLE_GAUGES = (
    "admission",
    "admission_keys",
    "requests_in_flight",
    "admitted_requests",
    "queued_requests",
    "queued_bytes",
    "orphan_legs",
    "worker_in_flight",
)
# Columns are given out from the lowest; no test has so many workers.
COLUMNS = 256


def load_tables(fleet: FleetStack) -> list[LoadTable]:
    """The fleet's load table as each of its processes sees it."""
    memory = _map(fleet, "load")
    rows = fleet.processes
    return [LoadTable(rows=rows, columns=DEFAULT_COLUMNS, row=row, buffer=memory) for row in range(rows)]


def leftovers(fleet: FleetStack) -> list[str]:
    """What the processes still count, each by itself: legs and tokens of the load table, permits, requests and busy
    connections of the metrics."""
    found = []
    for table in load_tables(fleet):
        for what, cells in (("legs", table.own_legs), ("tokens", table.own_tokens)):
            found += [f"process {table.row}: {cell} {what} in a column" for cell in cells[:COLUMNS] if cell]
    rows = SharedMetrics(_map(fleet, "metrics"), metrics_rows(fleet.processes)).rows[: fleet.processes]
    for index, row in enumerate(rows):
        if not row.writer:
            found.append(f"process {index} does not serve")
        for family in (*IDLE_GAUGES, "worker_connections"):
            for series in row.family(family):
                cells = [row.floats[series.first + at] for at in range(series.cells)]
                busy = family != "worker_connections" or series.labels[-1] == "busy"
                if busy and not isnan(cells[0]) and any(cells):
                    found.append(f"process {index}: {family}{series.labels} is {cells}")
    return found


def _map(fleet: FleetStack, name: str) -> mmap.mmap:
    directory = Path(f"/proc/{fleet.program.pid}/fd")
    paths = [path for path in directory.iterdir() if f"memfd:disagg-proxy-{name}" in _target(path)]
    descriptor = os.open(paths[0], os.O_RDWR)
    try:
        return map_memory(descriptor)
    finally:
        os.close(descriptor)


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # the process has closed it meanwhile
        return ""
