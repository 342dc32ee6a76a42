"""One repetition: fresh workers, a fresh proxy, a fresh load generator; every figure of one case."""

import math
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.accounting import cpu_seconds, memory_kib
from bench.cases import Case
from bench.child import Child, ChildError, free_port, wait_for_port
from bench.contestants import Contestant, Ports
from bench.instructions import InstructionCount
from bench.machine import cores


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each phase takes, in seconds, and how many exchanges the one-client phase has."""

    warm_up: float = 1.0
    measured: float = 4.0
    open_loop: float = 4.0
    pairs: int = 150
    streams: int | None = None
    extra_phases: bool = True

    def changed(self, **values: Any) -> "Plan":
        return replace(self, **values)


QUICK = Plan(warm_up=0.4, measured=1.2, open_loop=0.0, pairs=40, streams=512)


@dataclass(slots=True)
class Figures:
    """Figures of one repetition; NaN where the case has none.

    Times in milliseconds, memory in KiB. `busy`: share of its core that the proxy used in the closed loop.
    """

    requests: int = 0
    cpu_ms: float = math.nan
    system_share: float = math.nan
    instructions: float = math.nan
    rate: float = math.nan
    busy: float = math.nan
    latency_p50_ms: float = math.nan
    latency_p99_ms: float = math.nan
    first_p50_ms: float = math.nan
    first_p99_ms: float = math.nan
    reads: float = math.nan
    added_p50_ms: float = math.nan
    added_p99_ms: float = math.nan
    added_first_p50_ms: float = math.nan
    workers_p50_ms: float = math.nan
    open_p50_ms: float = math.nan
    open_p99_ms: float = math.nan
    peak_kib: float = math.nan
    idle_kib: float = math.nan
    stream_kib: float = math.nan
    idle_first_p50_ms: float = math.nan
    held_first_p50_ms: float = math.nan
    held_first_p99_ms: float = math.nan

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


class WrongAnswersError(ChildError):
    """The proxy answered wrongly; there is no result to report."""


def _right(report: dict[str, object], what: str) -> dict[str, float]:
    if report["errors"] or not report["requests"]:
        raise WrongAnswersError(
            f"{what}: {report['errors']} errors, {report['requests']} right: {report['reasons']}"
        )
    return report  # type: ignore[return-value]  # its values are numbers now


class Repetition:
    """Owns the processes of one repetition."""

    def __init__(self, case: Case, contestant: Contestant, plan: Plan) -> None:
        self._case = case
        self._contestant = contestant
        self._plan = plan
        self.figures = Figures()

    def run(self) -> Figures:
        """Raises MissingError, WrongAnswersError or ChildError."""
        case, contestant = self._case, self._contestant
        proxy_core, other_core = cores()
        folder = Path(tempfile.mkdtemp(prefix="bench-"))
        fakes_command = [
            sys.executable,
            "-m",
            "bench.fakes",
            "--case",
            case.name,
            "--dialect",
            contestant.dialect,
        ]
        try:
            with Child(fakes_command, other_core, talks=True) as fakes:
                started = fakes.read(30)
                ports = Ports(free_port(), started["context"], started["generation"])
                launch = contestant.build(ports, folder)
                with (
                    Child(
                        launch.command, proxy_core, environment=launch.environment, directory=launch.directory
                    ) as proxy,
                    Child(self._load_command(ports), other_core, talks=True) as load,
                ):
                    try:
                        wait_for_port(ports.proxy, proxy)
                        self._phases(proxy, load)
                    except ChildError as error:
                        counts = fakes.ask("counts", 10)
                        raise type(error)(
                            f"{error}; workers saw {counts}; proxy said {proxy.log_tail(600)!r}"
                        ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return self.figures

    def _load_command(self, ports: Ports) -> list[str]:
        command = [sys.executable, "-m", "bench.load", "--case", self._case.name, "--port", str(ports.proxy)]
        command += ["--context", str(ports.context), "--generation", str(ports.generation)]
        command += ["--body", self._contestant.body, "--dialect", self._contestant.dialect]
        if self._contestant.arrays:
            command.append("--arrays")
        return command

    def _phases(self, proxy: Child, load: Child) -> None:
        ready = load.ask("ready", 60, timeout=10.0)
        if not ready["ready"]:
            raise WrongAnswersError(f"never a right answer: {ready['problem']}")
        if self._case.streams:
            self._hold_streams(proxy, load)
        else:
            self._closed_loop(proxy, load)
            if self._plan.extra_phases:
                self._latencies(load)
        self.figures.peak_kib = memory_kib(proxy.pid)[1]

    def _closed_loop(self, proxy: Child, load: Child) -> None:
        case, plan, figures = self._case, self._plan, self.figures
        # Paced streams take a second each, whatever the proxy: more time for as many requests.
        seconds = (
            max(plan.measured * 1.5, 2 * case.chunks * case.interval_ms / 1000)
            if case.paced
            else plan.measured
        )
        _right(load.ask("closed", connections=case.connections, seconds=plan.warm_up), "warm-up")
        with InstructionCount(proxy.pid) as instructions:
            user, system = cpu_seconds(proxy.pid)
            report = _right(load.ask("closed", connections=case.connections, seconds=seconds), "closed loop")
            user_after, system_after = cpu_seconds(proxy.pid)
        spent, in_kernel = user_after + system_after - user - system, system_after - system
        figures.requests = int(report["requests"])
        figures.cpu_ms = spent / report["requests"] * 1e3
        figures.system_share = in_kernel / spent if spent else math.nan
        figures.instructions = instructions.total / report["requests"]
        figures.rate = report["rate"]
        figures.busy = spent / report["seconds"]
        figures.latency_p50_ms, figures.latency_p99_ms = report["latency_p50_ms"], report["latency_p99_ms"]
        figures.first_p50_ms, figures.first_p99_ms = report["first_p50_ms"], report["first_p99_ms"]
        figures.reads = report["reads_per_request"]

    def _latencies(self, load: Child) -> None:
        case, plan, figures = self._case, self._plan, self.figures
        if not case.paced:
            # Long bodies take long with slow contestants; fewer pairs keep the repetitions alike in length.
            count = max(10, plan.pairs // (1 + case.body_bytes // 80_000))
            report = _right(load.ask("pairs", count=count), "one client")
            figures.added_p50_ms, figures.added_p99_ms = report["added_p50_ms"], report["added_p99_ms"]
            figures.added_first_p50_ms = report["added_first_p50_ms"]
            figures.workers_p50_ms = report["direct_p50_ms"]
        if case.open_rate and plan.open_loop:
            report = _right(
                load.ask("open", rate=case.open_rate, seconds=plan.open_loop, connections=64), "open loop"
            )
            figures.open_p50_ms, figures.open_p99_ms = report["latency_p50_ms"], report["latency_p99_ms"]

    def _hold_streams(self, proxy: Child, load: Child) -> None:
        case, figures = self._case, self.figures
        count = self._plan.streams or case.streams
        alone = _right(load.ask("streams", count=40, at_once=1, gap=0.02), "first streams")
        figures.idle_kib = memory_kib(proxy.pid)[0]
        held = _right(load.ask("streams", 900, count=count, at_once=case.connections), "opening streams")
        # Every stream has had its first byte; let one more round of chunks pass before memory is read.
        time.sleep(1.5)
        figures.stream_kib = (memory_kib(proxy.pid)[0] - figures.idle_kib) / count
        cpu = sum(cpu_seconds(proxy.pid))
        time.sleep(2.0)
        figures.busy = (sum(cpu_seconds(proxy.pid)) - cpu) / 2.0
        crowded = _right(load.ask("streams", count=80, at_once=1, gap=0.02), "streams beside held ones")
        if crowded["held"] < count:
            raise WrongAnswersError(f"only {crowded['held']} of {count} streams stayed open")
        figures.requests = int(held["requests"])
        figures.idle_first_p50_ms = alone["first_p50_ms"]
        figures.held_first_p50_ms, figures.held_first_p99_ms = (
            crowded["first_p50_ms"],
            crowded["first_p99_ms"],
        )
