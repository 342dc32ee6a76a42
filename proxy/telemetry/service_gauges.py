"""The gauges of one process: where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proxy.lifecycle.service import Service
from proxy.telemetry import names
from proxy.telemetry.gauges import Sample, Source
from proxy.workers.worker import Worker

Traffic = Callable[[], tuple[int, int]]
"""Tells requests in flight and open client connections."""


def service_gauges(service: Service, traffic: Traffic) -> list[tuple[names.Metric, Source]]:
    """All sources of a service and its server."""
    registry = service.registry

    def per_worker(value: Callable[[Worker], float]) -> Source:
        return lambda: [
            ((str(worker.role), worker.address.text), value(worker)) for worker in registry.workers
        ]

    def connections() -> Iterator[Sample]:
        for worker in registry.workers:
            idle = worker.pool.idle_connections
            labels = (str(worker.role), worker.address.text)
            yield (*labels, "idle"), idle
            yield (*labels, "busy"), worker.pool.open_connections - idle

    return [
        (names.REQUESTS_IN_FLIGHT, lambda: [((), traffic()[0])]),
        (names.CONNECTIONS, lambda: [((), traffic()[1])]),
        (names.WORKER_IN_FLIGHT, per_worker(lambda worker: worker.in_flight)),
        (names.WORKER_READY, per_worker(lambda worker: worker.ready)),
        (names.WORKER_CONNECTIONS, connections),
        (names.READY, lambda: [((), service.ready)]),
    ]
