"""Times of many exchanges, and the figures made of them."""

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """Smallest value that at least `share` of the values do not exceed; NaN for none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Tally:
    """Results of one phase; times in seconds, reported in milliseconds."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.first_tokens: list[float] = []
        self.reads = 0
        self.errors = 0
        self.reasons: list[str] = []

    def note(self, latency: float, first: float, reads: int) -> None:
        self.latencies.append(latency)
        self.first_tokens.append(first)
        self.reads += reads

    def note_error(self, reason: str) -> None:
        self.errors += 1
        if len(self.reasons) < 3:
            self.reasons.append(reason)

    def report(self, seconds: float) -> dict[str, object]:
        """`seconds`: wall time of the phase, the requests still running at its end included."""
        count = len(self.latencies)
        return {
            "requests": count,
            "errors": self.errors,
            "reasons": self.reasons,
            "seconds": seconds,
            "rate": count / seconds if seconds else 0.0,
            "latency_p50_ms": quantile(self.latencies, 0.5) * 1e3,
            "latency_p99_ms": quantile(self.latencies, 0.99) * 1e3,
            "first_p50_ms": quantile(self.first_tokens, 0.5) * 1e3,
            "first_p99_ms": quantile(self.first_tokens, 0.99) * 1e3,
            "reads_per_request": self.reads / count if count else 0.0,
        }
