import json
from unittest.mock import ANY

import pytest

from proxy.lifecycle.record import RequestRecord
from proxy.lifecycle.worker_timing import MetricsEvent, combined, leg_metrics, without_metrics
from proxy.upstream.head import ResponseHead
from proxy.wire.rewriting import Rewriters

DONE = b"data: [DONE]\n\n"


@pytest.fixture
def record() -> RequestRecord:
    record = RequestRecord("r", 1.0)
    record.context_sent, record.context_done = 1.25, 1.5
    return record


def head(**metrics: bytes) -> ResponseHead:
    headers = [(name.replace("_", "-").encode(), value) for name, value in metrics.items()]
    return ResponseHead(200, [*headers, (b"content-type", b"x")], True)


CONTEXT = head(
    server_timing=b"server_queue;dur=1.0, server_ttft;dur=2.0",
    x_trtllm_start_end_time=b"server-start;ts=1.5, server-end;ts=2.5",
    x_trtllm_step_metrics=b"server-step-0-forward;dur=1",
    x_trtllm_ctx_chunk_metrics=b"server-ctx-chunk-0-forward;dur=4.2",
)
GENERATION = head(
    server_timing=b"server_e2e;dur=3.0",
    x_trtllm_start_end_time=b"server-start;ts=3",
    x_trtllm_step_metrics=b"server-step-1-forward;dur=2, server-step-2-gpu-sample;dur=3",
)


def test_all_lists_are_joined(record: RequestRecord) -> None:
    got = combined(leg_metrics(CONTEXT, b"ctx"), leg_metrics(GENERATION, b"gen"), record)
    assert got == [
        (
            b"server-timing",
            b"disagg_queue;dur=250.000, disagg_ttft;dur=500.000, ctx_queue;dur=1.0, ctx_ttft;dur=2.0, gen_e2e;dur=3.0",
        ),
        (b"x-trtllm-start-end-time", b"ctx-start;ts=1.5, ctx-end;ts=2.5, gen-start;ts=3"),
        (
            b"x-trtllm-step-metrics",
            b"ctx-step-0-forward;dur=1, gen-step-1-forward;dur=2, gen-step-2-gpu-sample;dur=3",
        ),
        (b"x-trtllm-ctx-chunk-metrics", b"ctx-ctx-chunk-0-forward;dur=4.2"),
    ]
    assert without_metrics([*got, (b"x-trtllm-other", b"server_x")]) == [(b"x-trtllm-other", b"server_x")]


def test_what_gets_too_long_is_left_out(record: RequestRecord) -> None:
    """As workers do with their own: what has a part for each step goes."""
    long = leg_metrics(
        head(server_timing=b"server_e2e;dur=3", x_trtllm_step_metrics=b"x" * 79 * 1024), b"gen"
    )
    assert [name for name, _ in combined([], long, record)] == [b"server-timing", b"x-trtllm-step-metrics"]
    assert [name for name, _ in combined(leg_metrics(CONTEXT, b"ctx"), [*long, *long], record)] == [
        b"server-timing",
        b"x-trtllm-start-end-time",
    ]


def stream(*metrics: object, line_end: bytes = b"\n") -> bytes:
    events = [b'data: {"choices":[{"text":"event: trtllm.perf_metrics"}]}\n\n', DONE]
    events += [b"event: trtllm.perf_metrics\ndata: %b\n\n" % json.dumps(each).encode() for each in metrics]
    return b"".join(events).replace(b"\n", line_end)


METRICS = {
    "Server-Timing": "server_e2e;dur=3.0",
    "X-TRTLLM-Start-End-Time": "server-start;ts=3",
    "x-trtllm-step-metrics": "server-step-1-forward;dur=2",
}


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_the_event_behind_a_stream(record: RequestRecord, line_end: bytes) -> None:
    body = stream(METRICS, line_end=line_end)
    verbatim = stream(line_end=line_end)
    for at in range(len(body) + 1):
        rewriters = Rewriters([MetricsEvent(leg_metrics(CONTEXT, b"ctx"), record)])
        got = rewriters.feed(body[:at]) + rewriters.feed(body[at:]) + rewriters.finish()
        assert got.startswith(verbatim)
        name, data, *end = got.removeprefix(verbatim).split(b"\n")
        assert (name, end) == (b"event: trtllm.perf_metrics", [b"", b""])
        assert json.loads(data.removeprefix(b"data: ")) == {
            "Server-Timing": ANY,
            "X-TRTLLM-Start-End-Time": "ctx-start;ts=1.5, ctx-end;ts=2.5, gen-start;ts=3",
            "X-TRTLLM-Step-Metrics": "ctx-step-0-forward;dur=1, gen-step-1-forward;dur=2",
            "X-TRTLLM-Ctx-Chunk-Metrics": "ctx-ctx-chunk-0-forward;dur=4.2",
        }
        own, _, theirs = json.loads(data.removeprefix(b"data: "))["Server-Timing"].partition(", ctx_")
        assert theirs == "queue;dur=1.0, ctx_ttft;dur=2.0, gen_e2e;dur=3.0"
        queue, ttft = (float(each.partition("=")[2]) for each in own.split(", "))
        assert queue == 250
        assert ttft > 500


@pytest.mark.parametrize("metrics", [(), ([1],), ("text",), ({"Server-Timing": 1},), ({"other": "x"},)])
def test_generation_workers_without_metrics(record: RequestRecord, metrics: tuple[object, ...]) -> None:
    got = Rewriters([MetricsEvent([], record)]).stream(stream(*metrics))
    assert got.startswith(stream())
    (line,) = [line for line in got.splitlines() if b"disagg_queue" in line]
    assert list(json.loads(line.removeprefix(b"data: "))) == ["Server-Timing"]
    assert got.count(b"event: trtllm.perf_metrics\n") == 1
