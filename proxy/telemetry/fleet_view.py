"""Merges the rows of all processes into the numbers of the fleet."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from proxy.telemetry.names import Metric
from proxy.telemetry.series import OTHER
from proxy.telemetry.shared import Kind, Labels, MetricsRow, Series, SharedMetrics

_KINDS = {"counter": Kind.COUNTER, "gauge": Kind.GAUGE, "histogram": Kind.HISTOGRAM}


class HistogramTotal(NamedTuple):
    """Observations per bucket (not cumulated; the last one is above all bounds) and their sum."""

    buckets: list[int]
    sum: float


class FleetView:
    """Reads; any process may do it at any time. Processes are numbered as their rows."""

    def __init__(self, memory: SharedMetrics) -> None:
        self._memory = memory

    @property
    def processes(self) -> int:
        """Processes that serve."""
        return sum(row.writer != 0 for row in self._memory.rows)

    def counters(self, metric: Metric) -> dict[Labels, int]:
        """Sums over all processes, those that have ended included."""
        totals: dict[Labels, int] = {}
        for _, row, series in self._series(metric, 1):
            totals[series.labels] = totals.get(series.labels, 0) + row.counts[series.first]
        return _without_unused(metric, totals)

    def gauges(self, metric: Metric) -> dict[Labels, float]:
        """One value per label set, merged as the metric says; `process` puts the number before the labels."""
        merged: dict[Labels, float] = {}
        for index, row, series in self._series(metric, 1):
            value = row.floats[series.first]
            if math.isnan(value) or row.writer == 0:
                continue
            labels = (str(index), *series.labels) if metric.merge == "process" else series.labels
            other = merged.get(labels)
            if other is None:
                merged[labels] = value
            elif metric.merge == "sum":
                merged[labels] = other + value
            else:
                merged[labels] = min(other, value) if metric.merge == "min" else max(other, value)
        return merged

    def histograms(self, metric: Metric) -> dict[Labels, HistogramTotal]:
        """Sums over all processes, those that have ended included."""
        size = len(metric.buckets) + 1
        totals: dict[Labels, HistogramTotal] = {}
        for _, row, series in self._series(metric, size + 1):
            buckets = row.counts[series.first : series.first + size].tolist()
            total = row.floats[series.first + size]
            before = totals.get(series.labels)
            if before is not None:
                buckets = [one + more for one, more in zip(before.buckets, buckets, strict=True)]
                total += before.sum
            totals[series.labels] = HistogramTotal(buckets, total)
        return {
            labels: total
            for labels, total in totals.items()
            if not _is_other(metric, labels) or any(total.buckets)
        }

    def _series(self, metric: Metric, cells: int) -> Iterator[tuple[int, MetricsRow, Series]]:
        kind = _KINDS[metric.kind]
        for index, row in enumerate(self._memory.rows):
            for series in row.family(metric.name):
                if series.kind is kind and series.cells == cells:
                    yield index, row, series


def _is_other(metric: Metric, labels: Labels) -> bool:
    return bool(labels) and labels == (OTHER,) * len(metric.labels)


def _without_unused(metric: Metric, totals: dict[Labels, int]) -> dict[Labels, int]:
    """Leave out the spare series while nothing was counted in it."""
    return {labels: n for labels, n in totals.items() if n or not _is_other(metric, labels)}
