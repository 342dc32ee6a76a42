import math
import mmap

import pytest

from proxy.telemetry import shared
from proxy.telemetry.fleet_view import FleetView, HistogramTotal
from proxy.telemetry.names import Metric
from proxy.telemetry.series import Counter, Gauge, Histogram
from proxy.telemetry.shared import MetricsRow, SharedMetrics

REQUESTS = Metric("requests", "", ("route", "outcome"))
FIELDS = Metric("fields", "", ("field",), most=3)
RETRIES = Metric("retries", "")
LATENCY = Metric("latency", "", ("leg",), kind="histogram", buckets=(0.1, 1.0))


def gauge(merge: str = "sum") -> Metric:
    return Metric("load", "", ("worker",), kind="gauge", merge=merge)  # type: ignore[arg-type]


@pytest.fixture
def buffer() -> mmap.mmap:
    return mmap.mmap(-1, SharedMetrics.size(3))


@pytest.fixture
def memory(buffer: mmap.mmap) -> SharedMetrics:
    """Two processes and a third row that nobody writes."""
    memory = SharedMetrics(buffer, 3)
    open_row(memory.rows[0], 100)
    open_row(memory.rows[1], 101)
    return memory


def open_row(row: MetricsRow, pid: int) -> None:
    row.open()
    row.announce(pid)


def small_rows(monkeypatch: pytest.MonkeyPatch, *, cells: int, directory: int) -> SharedMetrics:
    monkeypatch.setattr(shared, "_CELLS", cells)
    monkeypatch.setattr(shared, "_DIRECTORY_BYTES", directory)
    monkeypatch.setattr(shared, "_ROW_BYTES", 64 + directory + cells * 8)
    return SharedMetrics.private()


def test_counters_are_summed_by_labels(memory: SharedMetrics) -> None:
    first, second = (Counter(row, REQUESTS) for row in memory.rows[:2])
    first.add(1, ("/a", "ok"))
    first.add(2, ("/a", "ok"))
    first.add(1, ("/a", "error"))
    second.add(4, ("/b", "ok"))
    second.add(5, ("/a", "ok"))
    assert FleetView(memory).counters(REQUESTS) == {("/a", "ok"): 8, ("/a", "error"): 1, ("/b", "ok"): 4}


def test_a_counter_without_labels_is_there_from_the_start(memory: SharedMetrics) -> None:
    counters = [Counter(row, RETRIES) for row in memory.rows[:2]]
    assert FleetView(memory).counters(RETRIES) == {(): 0}
    counters[1].add(3)
    assert FleetView(memory).counters(RETRIES) == {(): 3}


def test_a_view_that_exists_already_sees_new_series(memory: SharedMetrics) -> None:
    view = FleetView(memory)
    assert view.counters(REQUESTS) == {}
    counter = Counter(memory.rows[0], REQUESTS)
    counter.add(1, ("/a", "ok"))
    assert view.counters(REQUESTS) == {("/a", "ok"): 1}
    counter.add(1, ("/b", "ok"))
    assert view.counters(REQUESTS) == {("/a", "ok"): 1, ("/b", "ok"): 1}


def test_a_new_process_goes_on_where_its_predecessor_stopped(
    memory: SharedMetrics, buffer: mmap.mmap
) -> None:
    before = Counter(memory.rows[1], REQUESTS)
    before.add(7, ("/a", "ok"))
    Histogram(memory.rows[1], LATENCY).observe(0.5, ("context",))
    memory.rows[1].close()
    assert FleetView(memory).counters(REQUESTS) == {("/a", "ok"): 7}

    again = SharedMetrics(buffer, 3)
    open_row(again.rows[1], 102)
    after = Counter(again.rows[1], REQUESTS)
    after.add(1, ("/a", "ok"))
    after.add(1, ("/z", "ok"))
    Histogram(again.rows[1], LATENCY).observe(3.0, ("context",))
    for view in (FleetView(memory), FleetView(again)):
        assert view.counters(REQUESTS) == {("/a", "ok"): 8, ("/z", "ok"): 1}
        assert view.histograms(LATENCY) == {("context",): HistogramTotal([0, 1, 1], 3.5)}


def test_label_sets_beyond_the_limit_are_other(memory: SharedMetrics) -> None:
    counter = Counter(memory.rows[0], FIELDS)
    for name in ("a", "b", "c", "d", "e", "a"):
        counter.add(1, (name,))
    assert FleetView(memory).counters(FIELDS) == {("a",): 2, ("b",): 1, ("c",): 1, ("other",): 2}


def test_long_labels_are_other(memory: SharedMetrics) -> None:
    counter = Counter(memory.rows[0], FIELDS)
    counter.add(1, ("x" * 257,))
    counter.add(1, ("y" * 256,))
    assert FleetView(memory).counters(FIELDS) == {("y" * 256,): 1, ("other",): 1}


@pytest.mark.parametrize("label", ['a"b', "a\nb", "ä", "\x1f", "\0", "", "€" * 256])
def test_any_text_can_be_a_label(memory: SharedMetrics, label: str) -> None:
    Counter(memory.rows[0], FIELDS).add(1, (label,))
    assert FleetView(memory).counters(FIELDS) == {(label,): 1}


def test_a_full_directory_counts_as_other(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = small_rows(monkeypatch, cells=1000, directory=256)
    counter = Counter(memory.rows[0], REQUESTS)
    for number in range(100):
        counter.add(1, (f"/{number}", "ok"))
    totals = FleetView(memory).counters(REQUESTS)
    assert sum(totals.values()) == 100
    assert totals["other", "other"] > 90
    with pytest.raises(ValueError, match="no room for the metric"):
        Counter(memory.rows[0], RETRIES._replace(name="x" * 200))


def test_full_cells_count_as_other(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = small_rows(monkeypatch, cells=12, directory=4096)
    histogram = Histogram(memory.rows[0], LATENCY)
    for number in range(10):
        histogram.observe(0.5, (str(number),))
    assert FleetView(memory).histograms(LATENCY) == {
        ("0",): HistogramTotal([0, 1, 0], 0.5),
        ("1",): HistogramTotal([0, 1, 0], 0.5),
        ("other",): HistogramTotal([0, 8, 0], 4.0),
    }


def test_wrong_number_of_labels_is_refused(memory: SharedMetrics) -> None:
    with pytest.raises(ValueError, match="has the labels"):
        Counter(memory.rows[0], REQUESTS).add(1, ("/a",))


def test_histograms(memory: SharedMetrics) -> None:
    first, second = (Histogram(row, LATENCY) for row in memory.rows[:2])
    for value in (0.05, 0.1, 0.11, 1.0, 1.5, 100.0):
        first.observe(value, ("context",))
    second.observe(0.5, ("context",))
    second.observe(0.5, ("generation",))
    totals = FleetView(memory).histograms(LATENCY)
    # A bound belongs to its bucket (le).
    assert totals["context",].buckets == [2, 3, 2]
    assert math.isclose(totals["context",].sum, 103.26)
    assert totals["generation",] == HistogramTotal([0, 1, 0], 0.5)


def test_histograms_with_other_buckets_are_not_mixed(memory: SharedMetrics) -> None:
    """A process may start again after an upgrade that changed the buckets."""
    Histogram(memory.rows[0], LATENCY).observe(0.5, ("context",))
    newer = LATENCY._replace(buckets=(0.1, 1.0, 2.0))
    Histogram(memory.rows[0], newer).observe(0.5, ("context",))
    view = FleetView(memory)
    assert view.histograms(newer) == {("context",): HistogramTotal([0, 1, 0, 0], 0.5)}
    assert view.histograms(LATENCY) == {("context",): HistogramTotal([0, 1, 0], 0.5)}


@pytest.mark.parametrize(
    ("merge", "merged"),
    [
        ("sum", {("a",): 5.0, ("b",): 1.5}),
        ("min", {("a",): 2.0, ("b",): 1.5}),
        ("max", {("a",): 3.0, ("b",): 1.5}),
        ("process", {("0", "a"): 2.0, ("1", "a"): 3.0, ("1", "b"): 1.5}),
    ],
)
def test_gauges_are_merged_as_the_metric_says(memory: SharedMetrics, merge: str, merged: object) -> None:
    first, second = (Gauge(row, gauge(merge)) for row in memory.rows[:2])
    first.set(2, ("a",))
    second.set(3, ("a",))
    second.set(1.5, ("b",))
    assert FleetView(memory).gauges(gauge(merge)) == merged


def test_gauges_of_ended_processes_are_void(memory: SharedMetrics, buffer: mmap.mmap) -> None:
    first, second = (Gauge(row, gauge()) for row in memory.rows[:2])
    first.set(2, ("a",))
    second.set(3, ("a",))
    view = FleetView(memory)
    assert view.processes == 2
    memory.rows[1].close()
    assert view.gauges(gauge()) == {("a",): 2.0}
    assert view.processes == 1
    # A successor has no gauges before it sets them.
    again = SharedMetrics(buffer, 3)
    open_row(again.rows[1], 103)
    assert view.gauges(gauge()) == {("a",): 2.0}
    Gauge(again.rows[1], gauge()).set(1, ("b",))
    assert view.gauges(gauge()) == {("a",): 2.0, ("b",): 1.0}


def test_a_killed_process_leaves_no_gauges_to_its_successor(memory: SharedMetrics, buffer: mmap.mmap) -> None:
    Gauge(memory.rows[1], gauge()).set(3, ("a",))
    open_row(SharedMetrics(buffer, 3).rows[1], 103)
    assert FleetView(memory).gauges(gauge()) == {}


def test_cleared_gauges_vanish(memory: SharedMetrics) -> None:
    load = Gauge(memory.rows[0], gauge())
    load.set(2, ("a",))
    load.clear(("a",))
    load.clear(("never set",))
    assert FleetView(memory).gauges(gauge()) == {}
    load.set(1, ("a",))
    assert FleetView(memory).gauges(gauge()) == {("a",): 1.0}


def test_an_entry_that_is_not_complete_yet_is_read_later(memory: SharedMetrics, buffer: mmap.mmap) -> None:
    """On machines with weak ordering the end can be seen to move before the entry is there."""
    counter = Counter(memory.rows[0], REQUESTS)
    counter.add(1, ("/a", "ok"))
    used = int.from_bytes(buffer[8:16], "little")
    counter.add(1, ("/b", "ok"))
    at = 64 + used
    entry = buffer[at : at + 16]
    buffer[at : at + 16] = bytes(16)
    view = FleetView(SharedMetrics(buffer, 3))
    assert view.counters(REQUESTS) == {("/a", "ok"): 1}
    buffer[at : at + 16] = entry
    assert view.counters(REQUESTS) == {("/a", "ok"): 1, ("/b", "ok"): 1}


def test_another_layout_is_refused(buffer: mmap.mmap) -> None:
    memory = SharedMetrics(buffer, 3)
    buffer[0:8] = (99).to_bytes(8, "little")
    with pytest.raises(ValueError, match="layout 99"):
        open_row(memory.rows[0], 1)
