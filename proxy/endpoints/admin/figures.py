"""What the metrics of the fleet tell an operator: the workers, the requests, the processes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from proxy.telemetry import names
from proxy.telemetry.fleet_view import FleetView, HistogramTotal
from proxy.telemetry.shared import Labels
from proxy.telemetry.slices import in_slices

_Value = TypeVar("_Value")
_INFERENCE = frozenset({"/v1/chat/completions", "/v1/completions"})


class Spent(msgspec.Struct):
    """Times that were measured: how many, and their sum in seconds, since the start."""

    count: int = 0
    sum: float = 0.0

    def add(self, total: HistogramTotal) -> None:
        """Take more of them."""
        self.count += sum(total.buckets)
        self.sum += total.sum


class WorkerFigures(msgspec.Struct):
    """A worker in one role.

    Attributes:
        states, breakers: processes that see it so; they may differ for a moment.
        held: it drains because an operator says so.
        in_flight: legs that run on it.
        placed: legs that it got since the start.
        ended: those that have ended, by outcome.
        latency: of context legs their whole time, of streamed generation legs that to the first byte.
        probe_seconds: how long the last health probe took.
    """

    role: str
    worker: str
    states: dict[str, int] = {}
    breakers: dict[str, int] = {}
    held: bool = False
    in_flight: int = 0
    placed: int = 0
    ended: dict[str, int] = {}
    latency: Spent = msgspec.field(default_factory=Spent)
    probe_seconds: float = 0.0


class Figures:
    """One look at the metrics; the fields are filled by `read`.

    Attributes:
        workers: those that some process lists.
        requests: finished requests of the inference routes by outcome.
        overhead: the proxy's own time.
        first_byte: to the first byte of streamed answers: bounds and numbers, cumulated as in Prometheus.
        loop_lag, restarts: by process.
    """

    def __init__(self, view: FleetView) -> None:
        self._view = view
        self._workers: dict[Labels, WorkerFigures] = {}
        self.requests: dict[str, int] = {}
        self.overhead = Spent()
        self.first_byte: dict[str, Any] = {}
        self.loop_lag: dict[str, float] = {}
        self.restarts: dict[str, int] = {}

    async def read(self) -> None:
        """Fill the fields, in slices: there may be thousands of workers."""
        await in_slices(self._steps())

    @property
    def workers(self) -> list[WorkerFigures]:
        """In the order of roles and addresses."""
        return [self._workers[key] for key in sorted(self._workers)]

    def _steps(self) -> Iterator[None]:
        self._of_requests()
        yield
        yield from self._of_workers()

    def _of_requests(self) -> None:
        view = self._view
        for (route, _, _, outcome), number in view.counters(names.REQUESTS).items():
            if route in _INFERENCE:
                self.requests[outcome] = self.requests.get(outcome, 0) + number
        for total in view.histograms(names.OVERHEAD_SECONDS).values():
            self.overhead.add(total)
        sums = [0] * (len(names.FIRST_BYTE_SECONDS.buckets) + 1)
        for total in view.histograms(names.FIRST_BYTE_SECONDS).values():
            sums = [one + more for one, more in zip(sums, total.buckets, strict=True)]
        self.first_byte = {"bounds": names.FIRST_BYTE_SECONDS.buckets, "counts": list(accumulate(sums))}
        self.loop_lag = {labels[0]: lag for labels, lag in view.gauges(names.LOOP_LAG).items()}
        self.restarts = {labels[0]: count for labels, count in view.counters(names.PROCESS_RESTARTS).items()}

    def _of_workers(self) -> Iterator[None]:
        view = self._view
        for seen in view.gauge_chunks(names.WORKER_STATE):
            for (role, worker, state), processes in seen.items():
                row = self._workers.setdefault((role, worker), WorkerFigures(role, worker))
                row.states[state] = int(processes)
            yield
        for running in view.gauge_chunks(names.WORKER_IN_FLIGHT):
            for row, _, legs in self._known(running):
                row.in_flight = int(legs)
            yield
        for placed in view.counter_chunks(names.PLACEMENTS):
            for row, _, number in self._known(placed):
                row.placed = number
            yield
        for ended in view.counter_chunks(names.WORKER_LEGS):
            for row, (outcome,), number in self._known(ended):
                row.ended[outcome] = number
            yield
        for times in view.histogram_chunks(names.WORKER_SECONDS):
            for row, _, total in self._known(times):
                row.latency.add(total)
            yield
        yield from self._of_processes_behind_workers()

    def _of_processes_behind_workers(self) -> Iterator[None]:
        """What is told once of a worker that has both roles."""
        view = self._view
        behind: dict[str, list[WorkerFigures]] = {}
        for row in self._workers.values():
            behind.setdefault(row.worker, []).append(row)
        for seen in view.gauge_chunks(names.WORKER_BREAKER):
            for (worker, state), processes in seen.items():
                for row in behind.get(worker, ()):
                    row.breakers[state] = int(processes)
            yield
        for probes in view.gauge_chunks(names.WORKER_PROBE_SECONDS):
            for (worker,), seconds in probes.items():
                for row in behind.get(worker, ()):
                    row.probe_seconds = seconds
            yield

    def _known(self, chunk: dict[Labels, _Value]) -> Iterator[tuple[WorkerFigures, Labels, _Value]]:
        """The workers of a chunk that are still listed, with the labels behind role and address."""
        for labels, value in chunk.items():
            row = self._workers.get(labels[:2])
            if row is not None:
                yield row, labels[2:], value
