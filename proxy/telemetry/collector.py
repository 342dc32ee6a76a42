"""Renders the counts and the workers' states for Prometheus at the moment of a scrape."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy import __version__
from proxy.lifecycle.service import Service
from proxy.telemetry import names
from proxy.telemetry.counters import Counters

Sample = tuple[tuple[str, ...], float]


class ProxyCollector(Collector):
    """Reads; the counting is done elsewhere."""

    def __init__(self, service: Service, counters: Counters) -> None:
        self._service = service
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client for each scrape."""
        counters, registry = self._counters, self._service.registry
        yield _counter(
            names.REQUESTS,
            (
                ((route, str(stream).lower(), outcome), n)
                for (route, stream, outcome), n in counters.requests.items()
            ),
        )
        yield _counter(names.REQUEST_BYTES, (((route,), n) for route, n in counters.request_bytes.items()))
        yield _counter(names.RESPONSE_BYTES, (((route,), n) for route, n in counters.response_bytes.items()))
        yield _counter(names.DROPPED_FIELDS, (((field,), n) for field, n in counters.dropped_fields.items()))
        yield _counter(names.RETRIES, [((), counters.retries)])
        workers = [((str(worker.role), worker.address.text), worker) for worker in registry.workers]
        yield _gauge(names.WORKER_IN_FLIGHT, ((labels, worker.in_flight) for labels, worker in workers))
        yield _gauge(names.WORKER_READY, ((labels, worker.ready) for labels, worker in workers))
        connections: list[Sample] = []
        for labels, worker in workers:
            idle = worker.pool.idle_connections
            connections.append(((*labels, "idle"), idle))
            connections.append(((*labels, "busy"), worker.pool.open_connections - idle))
        yield _gauge(names.WORKER_CONNECTIONS, connections)
        yield _gauge(names.READY, [((), self._service.ready)])
        yield _gauge(names.BUILD, [((__version__, platform.python_version()), 1)])


def _counter(metric: names.Metric, samples: Iterable[Sample]) -> Metric:
    family = CounterMetricFamily(names.PREFIX + metric.name, metric.documentation, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _gauge(metric: names.Metric, samples: Iterable[Sample]) -> Metric:
    family = GaugeMetricFamily(names.PREFIX + metric.name, metric.documentation, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
