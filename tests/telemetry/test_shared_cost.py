"""What counting costs on the path of a request. The bound is generous: machines that run tests are busy."""

import timeit
from collections.abc import Callable

import pytest

from proxy.telemetry.names import Metric
from proxy.telemetry.series import Counter, Histogram
from proxy.telemetry.shared import SharedMetrics

LABELS = ("/v1/chat/completions", "true", "ok")
REQUESTS = Metric("requests", "", ("route", "stream", "outcome"))
BUCKETS = tuple(0.001 * 2**n for n in range(20))
LATENCY = Metric("latency", "", ("leg",), kind="histogram", buckets=BUCKETS)
ROUNDS = 20_000


def nanoseconds(work: Callable[[], object]) -> float:
    return min(timeit.repeat(work, number=ROUNDS, repeat=9)) / ROUNDS * 1e9


@pytest.mark.parametrize("kind", ["counter", "histogram"])
def test_counting_stays_under_a_microsecond(
    kind: str, record_property: Callable[[str, object], None]
) -> None:
    row = SharedMetrics.private().rows[0]
    if kind == "counter":
        counter = Counter(row, REQUESTS)
        cost = nanoseconds(lambda: counter.add(1, LABELS))
    else:
        histogram = Histogram(row, LATENCY)
        cost = nanoseconds(lambda: histogram.observe(0.3, ("context",)))
    record_property("nanoseconds", round(cost))
    assert cost < 1000, f"{kind}: {cost:.0f} ns"
