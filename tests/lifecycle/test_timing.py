"""The headers that tell where the time went."""

import re
from types import SimpleNamespace

import pytest

from proxy.lifecycle.record import RequestRecord
from proxy.lifecycle.timing import add_timing, timing_headers
from proxy.lifecycle.worker_timing import combined, leg_metrics, without_metrics


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> RequestRecord:
    """A request that has taken 10 s, 9.5 of them elsewhere."""
    monkeypatch.setattr("proxy.lifecycle.timing.perf_counter", lambda: 110.0)
    made = RequestRecord("id", 100.0)
    made.queue_began, made.queue_ended = 100.0, 101.0
    made.context_sent, made.context_done = 101.0, 103.0
    made.generation_sent, made.generation_head = 103.25, 107.0
    made.waited = 9.5
    return made


def test_everything_is_known(record: RequestRecord) -> None:
    assert timing_headers(record) == [
        (b"x-disagg-proxy-overhead-us", b"500000"),
        (
            b"server-timing",
            b"queue;dur=1000.000, ctx;dur=2000.000, handoff;dur=250.000, gen;dur=3750.000, total;dur=10000.000",
        ),
    ]
    record.stream = True
    assert b", gen_first;dur=3750.000, " in timing_headers(record)[1][1]


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        (("generation_head",), ["queue", "ctx", "total"]),
        (("generation_sent", "generation_head"), ["queue", "ctx", "total"]),
        (("context_done", "generation_sent", "generation_head"), ["queue", "total"]),
        (("queue_began", "queue_ended"), ["queue", "ctx", "handoff", "gen", "total"]),
    ],
)
def test_what_was_not_reached_is_left_out(
    record: RequestRecord, missing: tuple[str, ...], names: list[str]
) -> None:
    for name in missing:
        setattr(record, name, 0.0)
    value = timing_headers(record)[1][1].decode()
    assert re.findall(r"(\w+);dur=[0-9.]+", value) == names
    assert re.fullmatch(r"(\w+;dur=\d+\.\d{3}(, )?)+", value)


def test_the_overhead_is_never_negative(record: RequestRecord) -> None:
    record.waited = 10.001
    assert timing_headers(record)[0][1] == b"0"


def test_a_workers_line_goes_on(record: RequestRecord) -> None:
    overhead, own = timing_headers(record)
    headers = [(b"server-timing", b"theirs;dur=1"), (b"x", b"y")]
    add_timing(headers, record)
    assert headers == [(b"server-timing", b"theirs;dur=1, " + own[1]), (b"x", b"y"), overhead]
    headers = [(b"x", b"y")]
    add_timing(headers, record)
    assert headers == [(b"x", b"y"), overhead, own]


HEAD = [
    (b"content-type", b"application/json"),
    (
        b"server-timing",
        b"server_queue;dur=1.0, server_ttft;dur=2.0, server_e2e;dur=3.0, server_kv_transfer;dur=0.0",
    ),
    (b"x-trtllm-start-end-time", b"server-start;ts=5.5, server-end;ts=6.5"),
    (b"x-trtllm-step-metrics", b'[{"iter": 1, "my_server_x": 2, "observer_y": 3}]'),
    (b"x-trtllm-other", b"server_x"),
]


def test_the_metrics_of_both_legs(record: RequestRecord) -> None:
    head = SimpleNamespace(headers=HEAD)
    context = leg_metrics(head, b"ctx")  # type: ignore[arg-type]
    generation = leg_metrics(head, b"gen")  # type: ignore[arg-type]
    assert dict(combined(context, generation, record)) == {
        b"server-timing": b"disagg_queue;dur=1000.000, disagg_ttft;dur=3000.000, "
        b"ctx_queue;dur=1.0, ctx_ttft;dur=2.0, ctx_e2e;dur=3.0, ctx_kv_transfer;dur=0.0, "
        b"gen_queue;dur=1.0, gen_ttft;dur=2.0, gen_e2e;dur=3.0, gen_kv_transfer;dur=0.0",
        b"x-trtllm-start-end-time": b"ctx-start;ts=5.5, ctx-end;ts=6.5, gen-start;ts=5.5, gen-end;ts=6.5",
        b"x-trtllm-step-metrics": b'[{"iter": 1, "my_server_x": 2, "observer_y": 3}]',
    }
    assert without_metrics(HEAD) == [HEAD[0], HEAD[4]]
