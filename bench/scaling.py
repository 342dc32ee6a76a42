"""`python -m bench.scaling`: CPU per request with one process and with two, at equal load.

Requests come at a fixed rate, round robin over many kept-alive connections, so that both do the same work; which
process gets a connection is the kernel's choice. One process and two take turns, each time with fresh programs. The
proxy may use all cores but the first, or all if there are only two; workers and load generator run on the first.
Shares are those of the requests that each process counts.

A process that has less to do costs more per request, whether or not there are others: its loop wakes up for fewer
events at once, and its caches are colder. One process at the rate of one of the others is measured too, to tell that
apart from what the fleet costs.
"""

import argparse
import json
import mmap
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path

from bench.accounting import cpu_seconds
from bench.child import ROOT, Child, ChildError, free_port, wait_for_port
from bench.contestants import Contestant, Ports, ours
from bench.machine import cores, description, load_average
from bench.spread import ratios, spread
from proxy.fleet.member import metrics_rows
from proxy.telemetry.shared import SharedMetrics

CASE = "S4"
TARGET = 1.1


@dataclass(frozen=True, slots=True)
class Load:
    """rate: requests per second; seconds: of each repetition; connections: kept alive."""

    rate: float
    seconds: float
    connections: int


def measure(processes: int, load: Load) -> tuple[float, list[float]]:
    """CPU milliseconds per request of the whole process tree, and each process's share of the requests.

    Raises:
        ChildError: something did not start or was not right.
    """
    contestant = Contestant("ours", "this proxy", ours(True))
    folder = Path(tempfile.mkdtemp(prefix="bench-scaling-"))
    _, other_core = cores()
    try:
        with Child([sys.executable, "-m", "bench.fakes", "--case", CASE], other_core, talks=True) as fakes:
            started = fakes.read(30)
            ports = Ports(free_port(), started["context"], started["generation"])
            launch = contestant.build(ports, folder)
            command = [*launch.command, "--workers", str(processes)]
            load_command = [sys.executable, "-m", "bench.load", "--case", CASE, "--port", str(ports.proxy)]
            with (
                Child(command, _proxy_cores(), environment=launch.environment, directory=ROOT) as proxy,
                Child(load_command, other_core, talks=True) as client,
            ):
                wait_for_port(ports.proxy, proxy)
                _wait_for_processes(ports.proxy, processes)
                _ask(client, load, 1.0)
                before, cpu = _served(proxy.pid, processes), sum(cpu_seconds(proxy.pid))
                requests = _ask(client, load, load.seconds)
                spent = sum(cpu_seconds(proxy.pid)) - cpu
                served = [now - then for now, then in zip(_served(proxy.pid, processes), before, strict=True)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return spent / requests * 1e3, [count / sum(served) for count in served]


def _proxy_cores() -> set[int]:
    usable = sorted(os.sched_getaffinity(0))
    return set(usable[1:] if len(usable) > 2 else usable)


def _ask(client: Child, load: Load, seconds: float) -> int:
    report = client.ask("open", rate=load.rate, seconds=seconds, connections=load.connections)
    if report["errors"]:
        raise ChildError(f"{report['errors']} wrong answers: {report['reasons']}")
    return int(report["requests"])


def _wait_for_processes(port: int, processes: int, seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        if {f"disagg_proxy_processes {processes}.0", "disagg_proxy_ready 1.0"} <= set(lines):
            return
        time.sleep(0.05)
    raise ChildError(f"not all of {processes} processes serve after {seconds:.0f} s")


def _served(pid: int, processes: int) -> list[int]:
    """Requests that each process has counted; the supervisor's shared memory is looked at from outside."""
    if processes == 1:
        return [1 + time.monotonic_ns()]  # it serves all of them
    for path in Path(f"/proc/{pid}/fd").iterdir():
        if "memfd:disagg-proxy-metrics" in os.readlink(path):
            with path.open("r+b", buffering=0) as file:
                memory = mmap.mmap(file.fileno(), os.fstat(file.fileno()).st_size)
            rows = SharedMetrics(memory, metrics_rows(processes)).rows[:processes]
            return [sum(row.counts[each.first] for each in row.family("requests")) for row in rows]
    raise ChildError("the fleet has no shared metrics")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2, help="compared with one")
    parser.add_argument("--rate", type=float, default=400.0, help="requests per second")
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON line instead of text")
    arguments = parser.parse_args()
    many = arguments.processes
    load = Load(arguments.rate, arguments.seconds, arguments.connections)
    part = replace(load, rate=load.rate / many, connections=load.connections // many)
    rounds = {"one": (1, load), "many": (many, load), "part": (1, part)}
    costs: dict[str, list[float]] = {name: [] for name in rounds}
    shares: list[float] = []
    for number in range(arguments.repetitions):
        for name in rounds if number % 2 == 0 else reversed(rounds):
            cost, share = measure(*rounds[name])
            costs[name].append(cost)
            if name == "many":
                shares += share
    ratio, own = ratios(costs["many"], costs["one"]), ratios(costs["many"], costs["part"])
    if arguments.json:
        print(json.dumps({**costs, "ratio": ratio.median, "own": own.median, "shares": shares}))
        return
    print(f"{description()}; load average {load_average():.1f}")
    print(f"{CASE} over {load.connections} connections, CPU ms per request:")
    print(f"1 process, {load.rate:.0f}/s: {spread(costs['one']).text()}")
    print(f"{many} processes, {load.rate:.0f}/s: {spread(costs['many']).text()}", end="")
    print(f", shares {min(shares):.0%} to {max(shares):.0%}")
    print(f"1 process, {part.rate:.0f}/s: {spread(costs['part']).text()}")
    result = "met" if ratio.median <= TARGET else "missed"
    print(f"at equal load: {ratio.text()}, target at most {TARGET}: {result}")
    print(f"at equal load of each process: {own.text()}")


if __name__ == "__main__":
    main()
