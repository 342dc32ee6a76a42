"""The gauges of one process: where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proxy.lifecycle.service import Service
from proxy.telemetry import names
from proxy.telemetry.admission_metrics import admission_metrics
from proxy.telemetry.discovery_metrics import discovery_metrics
from proxy.telemetry.gauges import Sample, Source
from proxy.telemetry.tokenisation_metrics import tokenisation_metrics
from proxy.telemetry.worker_metrics import by_role, worker_metrics

Traffic = Callable[[], tuple[int, int]]
"""Tells requests in flight and open client connections."""


def service_gauges(service: Service, traffic: Traffic) -> list[tuple[names.Metric, Source]]:
    """All sources of a service and its server."""
    registry = service.registry

    def in_flight() -> Iterator[Sample]:
        for labels, workers in by_role(registry):
            yield labels, sum(worker.in_flight for worker in workers)

    def ready() -> Iterator[Sample]:
        for worker in registry.workers:
            yield (str(worker.role), worker.address.text), worker.ready

    def connections() -> Iterator[Sample]:
        for worker in registry.workers:
            idle = worker.pool.idle_connections
            labels = (str(worker.role), worker.address.text)
            yield (*labels, "idle"), idle
            yield (*labels, "busy"), worker.pool.open_connections - idle

    return [
        (names.REQUESTS_IN_FLIGHT, lambda: [((), traffic()[0])]),
        (names.CONNECTIONS, lambda: [((), traffic()[1])]),
        (names.WORKER_IN_FLIGHT, in_flight),
        (names.WORKER_READY, ready),
        (names.WORKER_CONNECTIONS, connections),
        (names.READY, lambda: [((), service.ready)]),
        (names.RETRIES_REFUSED, lambda: [((), service.retry_budget.exhausted)]),
        *admission_metrics(service),
        *worker_metrics(registry),
        *(discovery_metrics(service.discovery) if service.discovery is not None else ()),
        *tokenisation_metrics(service),
    ]
