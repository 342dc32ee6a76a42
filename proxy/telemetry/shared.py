"""Counts of all processes of a fleet in one block of memory: each process writes its row, every process reads all.

A row is::

    header     8 int64: layout version, used bytes of the directory, pid of the process (0 = none), whether it serves
               requests, reserved
    directory  append-only entries, each: checksum, first cell, cells, kind, key; the key is a JSON list of
               family name and label values
    cells      int64 or double, 8 bytes each, zero until used

There is one writer per row and there are no locks: aligned stores of 8 bytes are atomic, and an entry is published by
moving the end of the directory behind it. The checksum covers machines on which the new end can be seen before the
entry (aarch64): such an entry is read at the next look. A process that starts again takes up the row as it finds it, so
that counters never go backwards.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Mapping, Sequence
from enum import IntEnum

import msgspec

Labels = tuple[str, ...]

_LAYOUT = 1
_VERSION, _USED, _WRITER, _SERVES = 0, 1, 2, 3
_HEADER_CELLS = 8
# Room for 4,000 workers with some dozens of series each. Pages that nobody touches cost nothing.
_CELLS = 256 * 1024
_DIRECTORY_BYTES = 8 * 1024 * 1024
_ROW_BYTES = _HEADER_CELLS * 8 + _DIRECTORY_BYTES + _CELLS * 8
_ENTRY = struct.Struct("<IIHHI")  # checksum, first cell, cells, key length, kind
_MOST_KEY_BYTES = 2048


class Kind(IntEnum):
    """What the cells of a series hold."""

    COUNTER = 0  # one int64
    GAUGE = 1  # one double; NaN = no value
    HISTOGRAM = 2  # one int64 per bucket, the one above all bounds included, and the sum as a double


class Series(msgspec.Struct, frozen=True):
    """One entry of a directory; `first` is the index of the first of its `cells` cells."""

    family: str
    labels: Labels
    kind: Kind
    first: int
    cells: int


_NOTHING: Mapping[Labels, Series] = {}


class SharedMetrics:
    """The block. Keeps a view of `buffer` for its whole life.

    Args:
        buffer: `size(rows)` bytes, zero at the very first use.
        rows: number of rows.
    """

    def __init__(self, buffer: mmap.mmap, rows: int) -> None:
        whole = memoryview(buffer)
        self.rows = [
            MetricsRow(whole[at : at + _ROW_BYTES]) for at in range(0, rows * _ROW_BYTES, _ROW_BYTES)
        ]

    @staticmethod
    def size(rows: int) -> int:
        """Bytes for this many rows."""
        return rows * _ROW_BYTES

    @classmethod
    def private(cls) -> SharedMetrics:
        """One row that no other process sees."""
        return cls(mmap.mmap(-1, cls.size(1)), 1)


class MetricsRow:
    """One process's counts.

    Attributes:
        counts, floats: the cells as int64 and as double; the owner changes them in place.
    """

    def __init__(self, memory: memoryview) -> None:
        self._header = memory[: _HEADER_CELLS * 8].cast("q")
        self._directory = memory[_HEADER_CELLS * 8 : _HEADER_CELLS * 8 + _DIRECTORY_BYTES]
        cells = memory[_HEADER_CELLS * 8 + _DIRECTORY_BYTES :]
        self.counts = cells.cast("q")
        self.floats = cells.cast("d")
        self._read = 0  # bytes of the directory that are in `_series`
        self._next_cell = 0
        self._series: dict[tuple[str, Kind, int], dict[Labels, Series]] = {}

    @property
    def writer(self) -> int:
        """The pid of the process that writes this row, 0 when there is none."""
        return self._header[_WRITER]

    @property
    def serves(self) -> bool:
        """Whether there is a process that writes this row and serves requests."""
        return self._header[_WRITER] != 0 and self._header[_SERVES] != 0

    def open(self) -> None:
        """Prepare to write: counters go on from where they stand, gauges have no value until they are set.

        Raises:
            ValueError: the row was written by a version with another layout.
        """
        if self._header[_VERSION] not in (0, _LAYOUT):
            raise ValueError(f"the metrics memory has layout {self._header[_VERSION]}, not {_LAYOUT}")
        self._header[_VERSION] = _LAYOUT
        self._header[_WRITER] = 0
        self._clear_gauges()

    def announce(self, pid: int, *, serves: bool = True) -> None:
        """The gauges of this process are set: they count from now on. A supervisor writes and does not serve."""
        self._header[_SERVES] = serves
        self._header[_WRITER] = pid

    def close(self) -> None:
        """There is no writer any more: the gauges are void, the counters stay."""
        self._header[_WRITER] = 0
        self._clear_gauges()

    def family(self, name: str) -> Sequence[Series]:
        """The series of a family, whatever they hold; for readers and the writer."""
        self._catch_up()
        return [each for key, series in self._series.items() if key[0] == name for each in series.values()]

    def series(self, family: str, kind: Kind, cells: int) -> Mapping[Labels, Series]:
        """The series of a family that hold this, in the order in which they appeared; a live view."""
        self._catch_up()
        return self._series.get((family, kind, cells), _NOTHING)

    def find_or_add(self, family: str, labels: Labels, kind: Kind, cells: int) -> Series | None:
        """The writer's way to a series; None when the row is full or the labels are too long."""
        self._catch_up()
        found = self._series.get((family, kind, cells), _NOTHING).get(labels)
        if found is not None:
            return found
        key = msgspec.json.encode([family, *labels])
        size = _entry_size(len(key))
        at = self._header[_USED]
        if (
            len(key) > _MOST_KEY_BYTES
            or at + size > _DIRECTORY_BYTES
            or self._next_cell + cells > len(self.counts)
        ):
            return None
        tail = _ENTRY.pack(0, self._next_cell, cells, len(key), kind)[4:] + key
        entry = zlib.crc32(tail).to_bytes(4, "little") + tail
        self._directory[at : at + len(entry)] = entry
        self._header[_USED] = at + size
        self._catch_up()
        return self._series[family, kind, cells][labels]

    def _catch_up(self) -> None:
        """Read the entries that were added since the last look."""
        end = self._header[_USED]
        while self._read < end:
            at = self._read
            checksum, first, cells, length, kind = _ENTRY.unpack_from(self._directory, at)
            tail = self._directory[at + 4 : at + _ENTRY.size + length]
            if zlib.crc32(tail) != checksum:
                return
            family, *labels = msgspec.json.decode(tail[_ENTRY.size - 4 :], type=list[str])
            series = Series(family, tuple(labels), Kind(kind), first, cells)
            self._series.setdefault((family, series.kind, cells), {})[series.labels] = series
            self._next_cell = first + cells
            self._read = at + _entry_size(length)

    def _clear_gauges(self) -> None:
        self._catch_up()
        for (_, kind, _), family in self._series.items():
            if kind is Kind.GAUGE:
                for series in family.values():
                    self.floats[series.first] = float("nan")


def _entry_size(key_length: int) -> int:
    return (_ENTRY.size + key_length + 7) // 8 * 8
