"""The counts that the processes of a fleet show each other, in the rows of the shared metrics.

A process writes its own row only, so nobody locks; whoever reads adds the rows up. A read may miss a write of the same
moment: the overshoot is at most one request per process. A process that ends leaves no counts behind (gauges of a row
without a writer have no value).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from proxy.telemetry.shared import Kind

if TYPE_CHECKING:
    from proxy.telemetry.shared import MetricsRow

# Families of the shared memory; they are no metrics, since the names of the keys are nobody else's business.
_FAMILY = "admission"
_KEYS_FAMILY = "admission_keys"
_CELLS = 3  # in the order of `Counts`


class Counts(NamedTuple):
    """What one process shows.

    Attributes:
        in_flight: admitted requests that have not ended.
        in_context: those of them whose context leg has not been answered.
        waiting: requests in the queue.
    """

    in_flight: int
    in_context: int
    waiting: int


_NOBODY = Counts(0, 0, 0)


class AdmissionBoard:
    """See the module's docstring.

    Args:
        own: this process's row.
        others: the rows of the other processes.

    Raises:
        ValueError: the row is full.
    """

    def __init__(self, own: MetricsRow, others: Sequence[MetricsRow]) -> None:
        self._own = own
        first = self._cell(_FAMILY, (), _CELLS)
        self._counts = own.floats[first : first + _CELLS]
        self._others = [_OtherRow(row) for row in others]
        self._keys: dict[str, int] = {}
        self.show(0, 0, 0)

    def show(self, in_flight: int, in_context: int, waiting: int) -> None:
        """Show the own counts, as in `Counts`."""
        # The first one last: readers take the counts for those of nobody as long as it has no value.
        counts = self._counts
        counts[2] = waiting
        counts[1] = in_context
        counts[0] = in_flight

    def sums(self) -> tuple[float, float, float]:
        """The counts of all other processes added up, as in `Counts`; several times cheaper than `others`."""
        in_flight = in_context = waiting = 0.0
        for row in self._others:
            cells = row.cells
            if cells is None:
                cells = row.look()
                if cells is None:
                    continue
            one, two, three = cells
            if one == one:  # else it is not a number: nobody writes the row
                in_flight += one
                in_context += two
                waiting += three
        return in_flight, in_context, waiting

    def others(self) -> list[Counts]:
        """The counts of all other processes."""
        return [row.counts() for row in self._others]

    def show_key(self, name: str, requests: int) -> None:
        """Show the own number of requests of a key."""
        cell = self._keys.get(name)
        if cell is None:
            cell = self._keys[name] = self._cell(_KEYS_FAMILY, (name,), 1)
        self._own.floats[cell] = requests

    def key_of_others(self, name: str) -> int:
        """Requests of a key in all other processes."""
        return sum(row.key(name) for row in self._others)

    def _cell(self, family: str, labels: tuple[str, ...], cells: int) -> int:
        series = self._own.find_or_add(family, labels, Kind.GAUGE, cells)
        if series is None:
            raise ValueError("the shared memory of the metrics is full")
        return series.first


class _OtherRow:
    """Reads another process's row; cells stay where they are once they exist.

    Attributes:
        cells: the counts, once `look` has found them.
    """

    def __init__(self, row: MetricsRow) -> None:
        self._row = row
        self.cells: memoryview[float] | None = None
        self._keys: dict[str, int] = {}

    def look(self) -> memoryview[float] | None:
        """Find the counts; None as long as the process has not shown any."""
        first = self._find(_FAMILY, (), _CELLS)
        if first is not None:
            self.cells = self._row.floats[first : first + _CELLS]
        return self.cells

    def counts(self) -> Counts:
        cells = self.cells if self.cells is not None else self.look()
        if cells is None:
            return _NOBODY
        one, two, three = cells
        if isnan(one):  # nobody writes the row
            return _NOBODY
        return Counts(int(one), int(two), int(three))

    def key(self, name: str) -> int:
        cell = self._keys.get(name)
        if cell is None:
            cell = self._find(_KEYS_FAMILY, (name,), 1)
            if cell is None:
                return 0
            self._keys[name] = cell
        value = self._row.floats[cell]
        return 0 if isnan(value) else int(value)

    def _find(self, family: str, labels: tuple[str, ...], cells: int) -> int | None:
        series = self._row.series(family, Kind.GAUGE, cells).get(labels)
        return None if series is None else series.first
