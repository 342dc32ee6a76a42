"""What the code that counts holds: counters, gauges and histograms over one row of the shared metrics.

An increment or observation costs some hundred nanoseconds (tests/telemetry/test_shared_cost.py): one look-up of the
labels in a dictionary and one or two stores through a memoryview (numpy scalars cost more).
"""

from __future__ import annotations

from bisect import bisect_left

from proxy.telemetry.names import Metric
from proxy.telemetry.shared import Kind, Labels, MetricsRow

OTHER = "other"
# Longer label values are not names of anything.
_LONGEST_LABEL = 256


class _Family:
    """The series of one metric in one row, by label values; those beyond the limits share one, `other`."""

    def __init__(self, row: MetricsRow, metric: Metric, kind: Kind, cells: int) -> None:
        self._row = row
        self._metric = metric
        self._kind = kind
        self._cells = cells
        self._first: dict[Labels, int] = {
            labels: series.first for labels, series in row.series(metric.name, kind, cells).items()
        }
        # Taken now, since it is needed when the row is full.
        self._other = self._add((OTHER,) * len(metric.labels))
        if self._other is None:
            raise ValueError(f"no room for the metric {metric.name}")

    def _miss(self, labels: Labels) -> int:
        """The first cell for labels that are seen for the first time."""
        assert self._other is not None  # noqa: S101 - for the type checker
        if len(self._first) > self._metric.most or max(map(len, labels), default=0) > _LONGEST_LABEL:
            return self._other
        first = self._add(labels)
        return self._other if first is None else first

    def _add(self, labels: Labels) -> int | None:
        if len(labels) != len(self._metric.labels):
            raise ValueError(f"{self._metric.name} has the labels {self._metric.labels}, not {labels}")
        series = self._row.find_or_add(self._metric.name, labels, self._kind, self._cells)
        if series is None:
            return None
        self._first[labels] = series.first
        return series.first


class Counter(_Family):
    """A whole number per label set that only rises."""

    def __init__(self, row: MetricsRow, metric: Metric) -> None:
        super().__init__(row, metric, Kind.COUNTER, 1)
        self._counts = row.counts

    def add(self, amount: int = 1, labels: Labels = ()) -> None:
        """Count. `labels` are the values in the order of the metric's label names."""
        first = self._first.get(labels)
        if first is None:
            first = self._miss(labels)
        self._counts[first] += amount


class Gauge(_Family):
    """A number per label set; without one until it is set."""

    def __init__(self, row: MetricsRow, metric: Metric) -> None:
        super().__init__(row, metric, Kind.GAUGE, 1)
        self._floats = row.floats
        for labels in self._first:
            self.clear(labels)

    def set(self, value: float, labels: Labels = ()) -> None:
        """Store the value."""
        first = self._first.get(labels)
        if first is None:
            first = self._miss(labels)
        self._floats[first] = value

    def clear(self, labels: Labels) -> None:
        """The label set has no value any more (its worker has gone)."""
        first = self._first.get(labels)
        if first is not None:
            self._floats[first] = float("nan")


class Histogram(_Family):
    """Observations in fixed buckets, and their sum."""

    def __init__(self, row: MetricsRow, metric: Metric) -> None:
        super().__init__(row, metric, Kind.HISTOGRAM, len(metric.buckets) + 2)
        self._counts = row.counts
        self._floats = row.floats
        self._bounds = metric.buckets
        self._sum = len(metric.buckets) + 1

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Count a value, in the unit of the bounds."""
        first = self._first.get(labels)
        if first is None:
            first = self._miss(labels)
        self._counts[first + bisect_left(self._bounds, value)] += 1
        self._floats[first + self._sum] += value
