"""How much every worker has to do, over all processes of this proxy.

One row per process, one column per worker; in each cell the legs in flight (int32) and their estimated prompt tokens
(int64). A process writes into its own row only, so nobody locks; a reader adds the rows up. A read may miss a write
that happens at the same moment: the overshoot is at most one leg per process.

A single process has one row in private memory. A fleet maps the same layout onto shared memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Legs = npt.NDArray[np.int32]
Tokens = npt.NDArray[np.int64]

DEFAULT_COLUMNS = 16384
"""Columns of a table that nobody chose the size of: 4,000 workers in each role, twice over."""
# Rows begin on cache lines of their own, so that processes do not slow each other down: 64 bytes are 16 int32.
_COLUMNS_PER_LINE = 16


class LoadTable:
    """See the module's docstring.

    Args:
        rows, columns: size; `columns` is rounded up to a multiple of 16.
        row: the one that this process owns.
        buffer: writable memory of `bytes_needed(rows, columns)` bytes, zeroed before its first use; private memory
            when None.

    Attributes:
        own_legs, own_tokens: the own row as memory views; reading one cell costs far less than through numpy.

    Raises:
        ValueError: the row does not exist or the buffer is too small.
    """

    __slots__ = (
        "_first_legs",
        "_first_tokens",
        "_legs",
        "_tokens",
        "_total_legs",
        "_total_tokens",
        "columns",
        "own_legs",
        "own_tokens",
        "row",
        "rows",
    )

    def __init__(
        self, *, rows: int = 1, columns: int = DEFAULT_COLUMNS, row: int = 0, buffer: Any = None
    ) -> None:
        if not 0 <= row < rows:
            raise ValueError(f"row {row} of {rows}")
        columns = _rounded(columns)
        if buffer is None:
            buffer = bytearray(self.bytes_needed(rows, columns))
        cells = rows * columns
        self.rows = rows
        self.columns = columns
        self.row = row
        self._legs: Legs = np.frombuffer(buffer, np.int32, cells).reshape(rows, columns)
        self._tokens: Tokens = np.frombuffer(buffer, np.int64, cells, offset=cells * 4).reshape(rows, columns)
        self._total_legs: Legs = np.zeros(columns, np.int32)
        self._total_tokens: Tokens = np.zeros(columns, np.int64)
        self._first_legs: Legs = self._legs[0]
        self._first_tokens: Tokens = self._tokens[0]
        self.own_legs: memoryview = memoryview(self._legs[row])
        self.own_tokens: memoryview = memoryview(self._tokens[row])

    @staticmethod
    def bytes_needed(rows: int, columns: int) -> int:
        """Size of the memory under a table, bytes."""
        return rows * _rounded(columns) * 12

    def add(self, column: int, legs: int, tokens: int = 0) -> None:
        """Change the own row's cell of a worker by `legs` and `tokens`, which may be negative."""
        self.own_legs[column] += legs
        if tokens:
            self.own_tokens[column] += tokens

    def totals(self) -> tuple[Legs, Tokens]:
        """Legs and tokens of each column, all processes together; valid until the next call, not to be written."""
        return self.legs(), self.tokens()

    def legs(self) -> Legs:
        """The first half of `totals`."""
        if self.rows == 1:
            return self._first_legs
        np.add.reduce(self._legs, axis=0, dtype=np.int32, out=self._total_legs)
        return self._total_legs

    def tokens(self) -> Tokens:
        """The second half of `totals`."""
        if self.rows == 1:
            return self._first_tokens
        np.add.reduce(self._tokens, axis=0, out=self._total_tokens)
        return self._total_tokens

    def legs_at(self, columns: npt.NDArray[np.intp], end: int) -> Legs:
        """Legs of some columns, all processes together, in their order.

        Args:
            columns: which.
            end: one more than the highest of them; what lies behind is not read.
        """
        if self.rows == 1:
            return self._first_legs.take(columns)
        total = self._total_legs[:end]
        np.add.reduce(self._legs[:, :end], axis=0, dtype=np.int32, out=total)
        return total.take(columns)

    def tokens_at(self, columns: npt.NDArray[np.intp], end: int) -> Tokens:
        """As `legs_at`, for tokens."""
        if self.rows == 1:
            return self._first_tokens.take(columns)
        total = self._total_tokens[:end]
        np.add.reduce(self._tokens[:, :end], axis=0, out=total)
        return total.take(columns)

    def legs_of(self, column: int) -> int:
        """Legs of one column, all processes together."""
        if self.rows == 1:
            return int(self.own_legs[column])
        return int(self._legs[:, column].sum())

    def clear_row(self, row: int) -> None:
        """Forget a process that died, before its successor starts."""
        self._legs[row] = 0
        self._tokens[row] = 0

    def clear_column(self, column: int) -> None:
        """Set the own cell of a column to zero, before the column goes to another worker."""
        self.own_legs[column] = 0
        self.own_tokens[column] = 0


def _rounded(columns: int) -> int:
    return -(-columns // _COLUMNS_PER_LINE) * _COLUMNS_PER_LINE
