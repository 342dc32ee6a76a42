"""The headers that tell where the time went."""

import re

import pytest

from proxy.lifecycle.record import RequestRecord
from proxy.lifecycle.timing import add_timing, timing_headers


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
