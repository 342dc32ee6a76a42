"""Renders the fleet's numbers for Prometheus at the moment of a scrape."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from proxy import __version__
from proxy.telemetry import names
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.shared import Labels
from proxy.telemetry.upstream_names import collect_upstream

_Value = TypeVar("_Value")


class ProxyCollector(Collector):
    """Reads; the counting is done elsewhere.

    Args:
        view: of all processes.
        refresh: brings this process's gauges up to date before a `collect`.
        metrics: what is rendered, in this order.
        upstream: render upstream's names too.
    """

    def __init__(
        self,
        view: FleetView,
        refresh: Callable[[], None],
        metrics: Sequence[names.Metric] = names.ALL,
        *,
        upstream: bool = False,
    ) -> None:
        self._view = view
        self._refresh = refresh
        self._metrics = metrics
        self._upstream = upstream

    def collect(self) -> Iterator[Metric]:
        """All families at once, for prometheus-client."""
        self._refresh()
        family: Metric | None = None
        for part in self.parts():
            if part is None:
                continue
            if family is not None and family.name == part.name:
                family.samples += part.samples
                continue
            if family is not None:
                yield family
            family = part
        if family is not None:
            yield family

    def parts(self) -> Iterator[Metric | None]:
        """The families, large ones in several parts that follow each other; None between them where it takes long."""
        for metric in self._metrics:
            yield from _KINDS[metric.kind](self, metric)
        yield _single(names.PROCESSES, self._view.processes)
        yield _single(names.BUILD, 1, (__version__, platform.python_version()))
        if self._upstream:
            yield from collect_upstream(self._view)

    def _counter(self, metric: names.Metric) -> Iterator[Metric]:
        for chunk in _at_least_one(self._view.counter_chunks(metric)):
            family = CounterMetricFamily(
                names.PREFIX + metric.name, metric.documentation, labels=metric.labels
            )
            for labels, value in chunk.items():
                family.add_metric(labels, value)
            yield family

    def _gauge(self, metric: names.Metric) -> Iterator[Metric]:
        labels = ("process", *metric.labels) if metric.merge == "process" else metric.labels
        for chunk in _at_least_one(self._view.gauge_chunks(metric)):
            family = GaugeMetricFamily(names.PREFIX + metric.name, metric.documentation, labels=labels)
            for values, value in chunk.items():
                family.add_metric(values, value)
            yield family

    def _histogram(self, metric: names.Metric) -> Iterator[Metric]:
        bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
        for chunk in _at_least_one(self._view.histogram_chunks(metric)):
            family = HistogramMetricFamily(
                names.PREFIX + metric.name, metric.documentation, labels=metric.labels
            )
            for labels, total in chunk.items():
                family.add_metric(
                    labels, list(zip(bounds, accumulate(total.buckets), strict=True)), total.sum
                )
            yield family


_KINDS = {
    "counter": ProxyCollector._counter,
    "gauge": ProxyCollector._gauge,
    "histogram": ProxyCollector._histogram,
}


def _at_least_one(chunks: Iterator[dict[Labels, _Value]]) -> Iterator[dict[Labels, _Value]]:
    """A family without series is told too."""
    empty = True
    for chunk in chunks:
        empty = False
        yield chunk
    if empty:
        yield {}


def _single(metric: names.Metric, value: float, values: Sequence[str] = ()) -> Metric:
    family = GaugeMetricFamily(names.PREFIX + metric.name, metric.documentation, labels=metric.labels)
    family.add_metric(values, value)
    return family
