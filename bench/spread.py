"""Medians and spreads of repetitions, and ratios inside one interleaved run."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of the values that are numbers; NaN for none."""

    median: float
    low: float
    high: float
    count: int

    def text(self, digits: int = 3) -> str:
        """`0.21 (0.20 to 0.23)` with so many significant digits."""
        if not self.count:
            return ""
        if self.count == 1 or self.low == self.high:
            return significant(self.median, digits)
        median, low, high = (significant(value, digits) for value in (self.median, self.low, self.high))
        return f"{median} ({low} to {high})"


def spread(values: Iterable[float]) -> Spread:
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers:
        return Spread(math.nan, math.nan, math.nan, 0)
    return Spread(statistics.median(numbers), min(numbers), max(numbers), len(numbers))


def ratios(values: list[float], reference: list[float]) -> Spread:
    """Spread of value over reference, repetition by repetition.

    Speed drifts over minutes, so the two of one round are compared, not the two medians.
    """
    pairs = zip(values, reference, strict=False)
    return spread(value / base for value, base in pairs if base and not math.isnan(base))


def significant(value: float, digits: int) -> str:
    """Plain decimal notation with at least `digits` significant digits; empty for NaN."""
    if math.isnan(value):
        return ""
    if value == 0:
        return "0"
    if value == round(value):
        return f"{value:,.0f}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 6)}f}"
