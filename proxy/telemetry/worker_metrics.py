"""What the metrics tell of the workers and of placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from proxy.telemetry import names
from proxy.telemetry.gauges import Sample, Source
from proxy.telemetry.shared import Labels
from proxy.workers.outcome import LegOutcome
from proxy.workers.registry import Registry
from proxy.workers.worker import Role, Worker


def by_role(registry: Registry) -> Iterator[tuple[Labels, list[Worker]]]:
    """Role and address of every worker; one that serves several models is listed once for each of them."""
    for instance in registry.instances:
        for role in Role:
            workers = [worker for worker in instance.workers if worker.role is role]
            if workers:
                yield (str(role), instance.address.text), workers


def worker_metrics(registry: Registry) -> list[tuple[names.Metric, Source]]:
    """The sources; the counts are kept by the workers and pools themselves."""

    def state() -> Iterator[Sample]:
        for worker in registry.workers:
            yield (str(worker.role), worker.address.text, str(worker.state)), 1

    def breaker() -> Iterator[Sample]:
        for instance in registry.instances:
            yield (instance.address.text, str(instance.health.breaker.state)), 1

    def probe_seconds() -> Iterator[Sample]:
        for instance in registry.instances:
            yield (instance.address.text,), instance.health.probe_seconds

    def ejections() -> Iterator[Sample]:
        for instance in registry.instances:
            for reason, number in tuple(instance.health.ejections.items()):
                yield (instance.address.text, str(reason)), number

    def busy() -> Iterator[Sample]:
        for instance in registry.instances:
            yield (instance.address.text,), instance.health.busy_marks

    def placements() -> Iterator[Sample]:
        for labels, workers in by_role(registry):
            yield labels, sum(worker.placed for worker in workers)

    def legs() -> Iterator[Sample]:
        for labels, workers in by_role(registry):
            ended: Counter[LegOutcome] = Counter()
            for worker in workers:
                for outcome, number in worker.ended.items():
                    ended[outcome] += number
            for outcome, number in ended.items():
                yield (*labels, str(outcome)), number

    def last_resorts() -> Iterable[Sample]:
        sums: Counter[Labels] = Counter()
        for pool in registry.pools:
            sums[(str(pool.role),)] += pool.last_resorts
        return sums.items()

    def affinity() -> Iterable[Sample]:
        sums: Counter[Labels] = Counter()
        for pool in registry.pools:
            counts = pool.policy.affinity
            if counts is not None:
                role = str(pool.role)
                sums[role, "hit"] += counts.hits
                sums[role, "spill"] += counts.spills
                sums[role, "miss"] += counts.misses
        return sums.items()

    return [
        (names.WORKER_STATE, state),
        (names.WORKER_BREAKER, breaker),
        (names.WORKER_PROBE_SECONDS, probe_seconds),
        (names.WORKER_EJECTIONS, ejections),
        (names.WORKER_BUSY, busy),
        (names.WORKER_LEGS, legs),
        (names.PLACEMENTS, placements),
        (names.PLACEMENTS_LAST_RESORT, last_resorts),
        (names.AFFINITY, affinity),
    ]
