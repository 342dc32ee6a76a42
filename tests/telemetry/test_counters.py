"""What a finished request adds to the metrics."""

from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.config.address import parse_worker_address
from proxy.errors import ClientGone, InvalidRequest
from proxy.lifecycle.record import RequestRecord
from proxy.telemetry import names
from proxy.telemetry.counters import Counters
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.model_names import ModelNames
from proxy.telemetry.shared import SharedMetrics

SCOPE: Any = {"type": "http"}
CHAT = "/v1/chat/completions"


class World:
    def __init__(self) -> None:
        memory = SharedMetrics.private()
        self.view = FleetView(memory)
        self.counters = Counters(memory.rows[0], ModelNames(lambda: ["m"]))

    def settle(self, record: RequestRecord) -> None:
        self.counters.settle(record, SCOPE)

    def seen(self, metric: names.Metric) -> dict[tuple[str, ...], tuple[int, float]]:
        """Per labels: number of observations and their sum."""
        return {
            labels: (sum(total.buckets), total.sum) for labels, total in self.view.histograms(metric).items()
        }


def served(*, stream: bool = True) -> RequestRecord:
    """A request whose phases took 1 s, 2 s, ..., and 0.5 s in the proxy, ended just now."""
    now = perf_counter()
    record = RequestRecord("id", now - 10.5)
    record.route, record.model, record.stream, record.status = CHAT, "m", stream, 200
    record.queue_began, record.queue_ended = now - 10.5, now - 9.5
    record.context_sent, record.context_done = now - 9.5, now - 7.5
    record.generation_sent, record.generation_head = now - 7.25, now - 4
    record.first_byte = now - 3 if stream else now
    record.waited, record.ended = 10.0, now
    record.context_worker, record.generation_worker = worker("c:1"), worker("g:1")
    return record


def worker(url: str) -> Any:
    return SimpleNamespace(address=parse_worker_address(url))


@pytest.mark.parametrize("stream", [False, True])
def test_phases(stream: bool) -> None:
    world = World()
    world.settle(served(stream=stream))
    word = str(stream).lower()
    assert world.view.counters(names.REQUESTS) == {(CHAT, "m", word, "ok"): 1}
    expected = {
        names.QUEUE_SECONDS: {("ok",): 1.0},
        names.REQUEST_SECONDS: {("m", word): 10.5},
        names.OVERHEAD_SECONDS: {(word,): 0.5},
        names.LEG_SECONDS: {("context",): 2.0, ("generation",): 7.25},
        names.WORKER_SECONDS: {
            ("context", "c:1"): 2.0,
            **({("generation", "g:1"): 4.25} if stream else {}),
        },
        names.HAND_OFF_SECONDS: {(): 0.25},
        names.FIRST_BYTE_SECONDS: {("m",): 7.5} if stream else {},
        names.GENERATION_FIRST_BYTE_SECONDS: {(): 4.25 if stream else 0.0},
    }
    for metric, rows in expected.items():
        seen = world.seen(metric)
        for labels, seconds in rows.items():
            count, total = seen.get(labels, (0, 0.0))
            assert total == pytest.approx(seconds, abs=0.01), metric.name
            assert count == (1 if seconds else 0), metric.name
        assert {labels for labels, (count, _) in seen.items() if count} <= set(rows), metric.name


def test_a_request_that_got_no_worker_has_no_times() -> None:
    world = World()
    refused = RequestRecord("id", perf_counter())
    refused.route, refused.status, refused.error = CHAT, 400, InvalidRequest("no")
    world.settle(refused)
    assert world.view.counters(names.REQUESTS) == {(CHAT, "", "false", "rejected"): 1}
    assert world.view.counters(names.ERRORS) == {("client", "invalid_value"): 1}
    assert world.seen(names.REQUEST_SECONDS) == world.seen(names.QUEUE_SECONDS) == {}


def test_entering_at_once_is_no_time_in_the_queue() -> None:
    world = World()
    record = served()
    record.queue_began = record.queue_ended = 0.0
    world.settle(record)
    assert world.seen(names.QUEUE_SECONDS) == {("ok",): (1, 0.0)}


def test_leaving_between_the_legs() -> None:
    world = World()
    record = served()
    record.generation_sent = record.generation_head = record.first_byte = 0.0
    record.status, record.error = 499, ClientGone("left")
    world.settle(record)
    assert world.seen(names.LEG_SECONDS)["context",][0] == 1
    assert ("generation",) not in world.seen(names.LEG_SECONDS)
    assert not any(world.view.histograms(names.HAND_OFF_SECONDS)[()].buckets)


def test_a_second_pass_that_stops_after_prefill_has_no_negative_gap() -> None:
    world = World()
    record = served()
    record.context_done = record.generation_sent + 1
    world.settle(record)
    assert not any(world.view.histograms(names.HAND_OFF_SECONDS)[()].buckets)


def test_retries_by_leg() -> None:
    world = World()
    record = served()
    record.retries, record.generation_retries = 3, 1
    world.settle(record)
    assert world.view.counters(names.RETRIES) == {("context",): 2, ("generation",): 1}


def test_unknown_models_share_a_label() -> None:
    world = World()
    for name in ("x" * 300, "y", "m"):
        record = served()
        record.model = name
        world.settle(record)
    models = {labels[1]: count for labels, count in world.view.counters(names.REQUESTS).items()}
    assert models == {"other": 2, "m": 1}


def test_models_are_asked_for_once_a_second_at_most() -> None:
    now, asked = 100.0, []
    known = ["a"]

    def source() -> list[str]:
        asked.append(now)
        return known

    models = ModelNames(source, lambda: now)
    assert [models.label(name) for name in ("", "a", "b", "c", "b")] == ["", "a", "other", "other", "other"]
    assert asked == [100.0]
    known = ["b"]
    now = 101.0
    assert [models.label(name) for name in ("b", "a")] == ["b", "other"]
    assert asked == [100.0, 101.0]
