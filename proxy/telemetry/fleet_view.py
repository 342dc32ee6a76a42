"""Merges the rows of all processes into the numbers of the fleet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from operator import add
from typing import NamedTuple

from proxy.telemetry.names import Metric
from proxy.telemetry.series import OTHER
from proxy.telemetry.shared import Kind, Labels, MetricsRow, Series, SharedMetrics

_KINDS = {"counter": Kind.COUNTER, "gauge": Kind.GAUGE, "histogram": Kind.HISTOGRAM}

CHUNK = 64
"""Label sets that are merged in one go: with some workers in a few processes, well under a millisecond."""


class HistogramTotal(NamedTuple):
    """Observations per bucket (not cumulated; the last one is above all bounds) and their sum."""

    buckets: list[int]
    sum: float


_Rows = list[tuple[int, MetricsRow, Mapping[Labels, Series]]]


class FleetView:
    """Reads; any process may do it at any time. Processes are numbered as their rows.

    There may be thousands of workers with some series each: who must not take long at a time goes by the chunks.
    """

    def __init__(self, memory: SharedMetrics) -> None:
        self._memory = memory

    @property
    def processes(self) -> int:
        """Processes that serve."""
        return sum(row.serves for row in self._memory.rows)

    def counters(self, metric: Metric) -> dict[Labels, int]:
        """Sums over all processes, those that have ended included."""
        return dict(chain.from_iterable(chunk.items() for chunk in self.counter_chunks(metric)))

    def gauges(self, metric: Metric) -> dict[Labels, float]:
        """One value per label set, merged as the metric says; `process` puts the number before the labels."""
        return dict(chain.from_iterable(chunk.items() for chunk in self.gauge_chunks(metric)))

    def histograms(self, metric: Metric) -> dict[Labels, HistogramTotal]:
        """Sums over all processes, those that have ended included."""
        return dict(chain.from_iterable(chunk.items() for chunk in self.histogram_chunks(metric)))

    def counter_chunks(self, metric: Metric) -> Iterator[dict[Labels, int]]:
        """`counters` in pieces."""
        for chunk, rows in self._chunks(metric, 1):
            totals: dict[Labels, int] = {}
            for labels in chunk:
                total = sum(row.counts[series[labels].first] for _, row, series in rows if labels in series)
                if total or not _is_other(metric, labels):
                    totals[labels] = total
            yield totals

    def gauge_chunks(self, metric: Metric) -> Iterator[dict[Labels, float]]:
        """`gauges` in pieces."""
        apart = metric.merge == "process"
        for chunk, rows in self._chunks(metric, 1):
            merged: dict[Labels, float] = {}
            serving = [each for each in rows if each[1].writer != 0]
            for labels in chunk:
                for index, row, series in serving:
                    value = row.floats[series[labels].first] if labels in series else math.nan
                    if math.isnan(value):
                        continue
                    key = (str(index), *labels) if apart else labels
                    other = merged.get(key)
                    merged[key] = value if other is None else _MERGE[metric.merge](other, value)
            yield merged

    def histogram_chunks(self, metric: Metric) -> Iterator[dict[Labels, HistogramTotal]]:
        """`histograms` in pieces."""
        size = len(metric.buckets) + 1
        for chunk, rows in self._chunks(metric, size + 1):
            totals: dict[Labels, HistogramTotal] = {}
            for labels in chunk:
                buckets = [0] * size
                seconds = 0.0
                for _, row, series in rows:
                    if labels in series:
                        first = series[labels].first
                        own = row.counts[first : first + size].tolist()
                        buckets = [one + more for one, more in zip(buckets, own, strict=True)]
                        seconds += row.floats[first + size]
                if not _is_other(metric, labels) or any(buckets):
                    totals[labels] = HistogramTotal(buckets, seconds)
            yield totals

    def _chunks(self, metric: Metric, cells: int) -> Iterator[tuple[list[Labels], _Rows]]:
        """Some label sets at a time, and the rows with their series."""
        kind = _KINDS[metric.kind]
        rows = [
            (index, row, row.series(metric.name, kind, cells)) for index, row in enumerate(self._memory.rows)
        ]
        rows = [each for each in rows if each[2]]
        every = list(dict.fromkeys(chain.from_iterable(series for _, _, series in rows)))
        for at in range(0, len(every), CHUNK):
            yield every[at : at + CHUNK], rows


_MERGE: dict[str, Callable[[float, float], float]] = {"sum": add, "min": min, "max": max}


def _is_other(metric: Metric, labels: Labels) -> bool:
    """The spare series, which is left out while nothing was counted in it."""
    return bool(labels) and labels == (OTHER,) * len(metric.labels)
