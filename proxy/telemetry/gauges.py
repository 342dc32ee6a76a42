"""Puts this process's gauges into its row, so that a scrape of any process shows the whole fleet.

So are counts that are kept elsewhere, because they are needed there or must cost next to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from time import perf_counter

from proxy.telemetry.names import LOOP_LAG, Metric
from proxy.telemetry.series import Counter, Gauge
from proxy.telemetry.shared import Labels, MetricsRow
from proxy.telemetry.slices import in_slices

Sample = tuple[Labels, float]
Source = Callable[[], Iterable[Sample]]
"""What it gives is read with pauses, in which everything may change."""

_TICK = 0.25  # seconds; the event loop's lag is the largest of the ticks' delays
_SAMPLES_PER_STEP = 64
_TICKS_PER_REFRESH = 4  # other processes see values that are up to a second old


class _CountedElsewhere:
    """A counter whose source tells the count so far; one that begins anew at zero is taken for a new one."""

    def __init__(self, row: MetricsRow, metric: Metric) -> None:
        self._counter = Counter(row, metric)
        self._last: dict[Labels, int] = {}

    def set(self, value: float, labels: Labels = ()) -> None:
        """Count what has been added since the last time."""
        count = int(value)
        last = self._last.get(labels, 0)
        self._last[labels] = count
        added = count - last if count >= last else count
        if added:
            self._counter.add(added, labels)

    def clear(self, labels: Labels) -> None:
        """The next one with these labels begins at zero."""
        self._last.pop(labels, None)


class Gauges:
    """Sources are asked once a second and before each scrape of this process; nothing is counted in between.

    Args:
        row: this process's.
        sources: per metric what tells all its samples; label sets that are not told any more lose their value.
    """

    def __init__(self, row: MetricsRow, sources: Iterable[tuple[Metric, Source]]) -> None:
        self._sources = [
            ((Gauge if metric.kind == "gauge" else _CountedElsewhere)(row, metric), source)
            for metric, source in sources
        ]
        self._told: list[set[Labels]] = [set() for _ in self._sources]
        self._lag = Gauge(row, LOOP_LAG)
        self._worst = 0.0
        self._ticks = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._refreshing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def refresh(self) -> None:
        """Ask all sources, in one go."""
        for _ in self._steps():
            pass

    async def refresh_in_slices(self) -> None:
        """Ask all sources; they are asked anew after the call, even if somebody else is just doing it."""
        async with self._refreshing:
            with closing(self._steps()) as steps:
                await in_slices(steps)

    def _steps(self) -> Generator[None, None, None]:
        for at, (gauge, source) in enumerate(self._sources):
            told: set[Labels] = set()
            try:
                for labels, value in source():
                    gauge.set(value, labels)
                    told.add(labels)
                    if len(told) % _SAMPLES_PER_STEP == 0:
                        yield
            except GeneratorExit:
                # Whoever waited has left: the next refresh has to know what has been told.
                self._told[at] |= told
                raise
            for labels in self._told[at] - told:
                gauge.clear(labels)
            self._told[at] = told
            yield

    def start(self) -> None:
        """Begin to refresh and to measure the event loop; to be called inside it."""
        self.refresh()
        self._lag.set(0.0)
        self._arm()

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _arm(self) -> None:
        self._due = perf_counter() + _TICK
        self._timer = asyncio.get_running_loop().call_later(_TICK, self._tick)

    def _tick(self) -> None:
        # The loop counts whole milliseconds and may be one early.
        self._worst = max(self._worst, perf_counter() - self._due)
        self._ticks += 1
        if self._ticks == _TICKS_PER_REFRESH:
            self._lag.set(self._worst)
            self._worst = 0.0
            self._ticks = 0
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self.refresh_in_slices())
        self._arm()
