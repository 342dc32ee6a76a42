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
_COUNTS = (("in_flight",), ("in_context",), ("waiting",))


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
        self._cells = [self._cell(_FAMILY, labels) for labels in _COUNTS]
        self._others = [_OtherRow(row) for row in others]
        self._keys: dict[str, int] = {}
        self.show(0, 0, 0)

    def show(self, in_flight: int, in_context: int, waiting: int) -> None:
        """Show the own counts, as in `Counts`."""
        floats = self._own.floats
        one, two, three = self._cells
        floats[one] = in_flight
        floats[two] = in_context
        floats[three] = waiting

    def others(self) -> list[Counts]:
        """The counts of all other processes."""
        return [row.counts() for row in self._others]

    def show_key(self, name: str, requests: int) -> None:
        """Show the own number of requests of a key."""
        cell = self._keys.get(name)
        if cell is None:
            cell = self._keys[name] = self._cell(_KEYS_FAMILY, (name,))
        self._own.floats[cell] = requests

    def key_of_others(self, name: str) -> int:
        """Requests of a key in all other processes."""
        return sum(row.key(name) for row in self._others)

    def _cell(self, family: str, labels: tuple[str, ...]) -> int:
        series = self._own.find_or_add(family, labels, Kind.GAUGE, 1)
        if series is None:
            raise ValueError("the shared memory of the metrics is full")
        return series.first


class _OtherRow:
    """Reads another process's row; cells stay where they are once they exist."""

    def __init__(self, row: MetricsRow) -> None:
        self._row = row
        self._cells: list[int] = []
        self._keys: dict[str, int] = {}

    def counts(self) -> Counts:
        if not self._cells:
            cells = [self._find(_FAMILY, labels) for labels in _COUNTS]
            if None in cells:
                return _NOBODY
            self._cells = [cell for cell in cells if cell is not None]
        floats = self._row.floats
        one, two, three = self._cells
        if isnan(floats[one]):  # nobody writes the row
            return _NOBODY
        return Counts(int(floats[one]), int(floats[two]), int(floats[three]))

    def key(self, name: str) -> int:
        cell = self._keys.get(name)
        if cell is None:
            cell = self._find(_KEYS_FAMILY, (name,))
            if cell is None:
                return 0
            self._keys[name] = cell
        value = self._row.floats[cell]
        return 0 if isnan(value) else int(value)

    def _find(self, family: str, labels: tuple[str, ...]) -> int | None:
        return next((each.first for each in self._row.family(family) if each.labels == labels), None)
