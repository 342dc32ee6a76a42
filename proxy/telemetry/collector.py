"""Renders the fleet's numbers for Prometheus at the moment of a scrape."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from proxy import __version__
from proxy.telemetry import names
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.upstream_names import collect_upstream


class ProxyCollector(Collector):
    """Reads; the counting is done elsewhere.

    Args:
        view: of all processes.
        refresh: brings this process's gauges up to date.
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
        """Called by prometheus-client for each scrape."""
        self._refresh()
        for metric in self._metrics:
            if metric.kind == "counter":
                yield self._counter(metric)
            elif metric.kind == "gauge":
                yield self._gauge(metric)
            else:
                yield self._histogram(metric)
        yield _single(names.PROCESSES, self._view.processes)
        yield _single(names.BUILD, 1, (__version__, platform.python_version()))
        if self._upstream:
            yield from collect_upstream(self._view)

    def _counter(self, metric: names.Metric) -> Metric:
        family = CounterMetricFamily(names.PREFIX + metric.name, metric.documentation, labels=metric.labels)
        for labels, value in self._view.counters(metric).items():
            family.add_metric(labels, value)
        return family

    def _gauge(self, metric: names.Metric) -> Metric:
        labels = ("process", *metric.labels) if metric.merge == "process" else metric.labels
        family = GaugeMetricFamily(names.PREFIX + metric.name, metric.documentation, labels=labels)
        for values, value in self._view.gauges(metric).items():
            family.add_metric(values, value)
        return family

    def _histogram(self, metric: names.Metric) -> Metric:
        family = HistogramMetricFamily(names.PREFIX + metric.name, metric.documentation, labels=metric.labels)
        bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
        for labels, total in self._view.histograms(metric).items():
            family.add_metric(labels, list(zip(bounds, accumulate(total.buckets), strict=True)), total.sum)
        return family


def _single(metric: names.Metric, value: float, values: Sequence[str] = ()) -> Metric:
    family = GaugeMetricFamily(names.PREFIX + metric.name, metric.documentation, labels=metric.labels)
    family.add_metric(values, value)
    return family
