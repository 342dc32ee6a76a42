"""`python -m bench.telemetry`: what observing one request costs, piece by piece, in microseconds of CPU.

The records are those of a whole request with both legs; the counts go into real (private) shared memory; the access
lines go to /dev/null.
"""

import asyncio
import logging
import os
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time, thread_time
from types import SimpleNamespace
from typing import Any

from proxy.config.address import parse_worker_address
from proxy.downstream.sink import RelaySink
from proxy.downstream.sinks import ONE_OF, sink_maker
from proxy.lifecycle.record import RequestRecord
from proxy.lifecycle.timing import timing_headers
from proxy.telemetry import names
from proxy.telemetry.access_log import log_access
from proxy.telemetry.collector import ProxyCollector
from proxy.telemetry.counters import Counters
from proxy.telemetry.exposition import Exposition
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.gauges import Gauges
from proxy.telemetry.logs import configure_logging
from proxy.telemetry.model_names import ModelNames
from proxy.telemetry.request_log import RequestLog
from proxy.telemetry.series import Histogram
from proxy.telemetry.shared import SharedMetrics

ROUNDS = 20_000
REPEATS = 7
SCOPE: Any = {"type": "http", "method": "POST"}
LIMIT = 15.0
"""Microseconds for all metrics of a request."""


def microseconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """CPU per call, the best of some repetitions."""
    return min(timeit.repeat(work, number=rounds, repeat=REPEATS, timer=process_time)) / rounds * 1e6


def finished(*, stream: bool) -> RequestRecord:
    """A request that has just ended."""
    now = perf_counter()
    record = RequestRecord("0123456789abcdef0123456789abcdef", now - 2.0)
    record.route, record.model, record.stream, record.status = "/v1/chat/completions", "m", stream, 200
    record.body_size, record.response_size = 1000, 5000
    record.conversation = "conversation-1"
    record.disagg_request_id = 2**62
    record.context_worker = record.generation_worker = _worker("http://10.0.0.1:8000")
    record.context_sent, record.context_done = now - 1.9, now - 1.5
    record.generation_sent, record.generation_head = now - 1.499, now - 1.4
    record.first_byte, record.waited, record.ended = now - 1.39, 1.99, now
    record.dropped = ("user",)
    return record


def _worker(url: str) -> Any:
    return SimpleNamespace(address=parse_worker_address(url))


async def _lines(record: RequestRecord) -> float:
    """One of many access lines, written by and by as in a server."""
    return microseconds(lambda: log_access(record, SCOPE))


def _watching() -> float:
    """What noting the time spent waiting adds to both legs: two readings of the clock each."""

    def clock() -> None:
        perf_counter()
        perf_counter()

    return 2 * microseconds(clock)


def _gaps(observe: Callable[[float], None]) -> float:
    """What sampling adds to one stream of 200 pieces, on average over streams."""
    transport = SimpleNamespace(write=lambda data: None, is_closing=lambda: False)
    loop = SimpleNamespace(create_future=lambda: None)
    flow = SimpleNamespace(write_paused=False)
    cycle: Any = SimpleNamespace(protocol=SimpleNamespace(transport=transport, loop=loop, flow=flow))
    source: Any = SimpleNamespace(pause=lambda: None)
    piece = b"x" * 200

    def stream(make: Callable[..., RelaySink]) -> Callable[[], None]:
        def run() -> None:
            sink = make(cycle, source, b"head", chunked=True)
            for _ in range(200):
                sink.write(piece)

        return run

    rounds = 10 * ONE_OF
    with_samples = microseconds(stream(sink_maker(0.0, observe)), rounds)
    return with_samples - microseconds(stream(sink_maker(0.0, None)), rounds)


async def _scrape() -> tuple[float, float]:
    """CPU of a scrape with 1,000 workers in each role, and the longest time for which it keeps the event loop, both in
    milliseconds."""
    memory = SharedMetrics.private()
    row = memory.rows[0]
    workers = [
        (role, f"10.0.{at // 250}.{at % 250}:8000")
        for role in ("context", "generation")
        for at in range(1000)
    ]
    sources = {
        names.WORKER_IN_FLIGHT: [()],
        names.WORKER_READY: [()],
        names.WORKER_STATE: [("ready",)],
        names.WORKER_CONNECTIONS: [("idle",), ("busy",)],
        names.WORKER_LEGS: [("ok",), ("cancelled",)],
        names.PLACEMENTS: [()],
    }
    gauges = Gauges(
        row,
        [
            (metric, lambda ends=ends: [((*worker, *end), 1.0) for worker in workers for end in ends])
            for metric, ends in sources.items()
        ],
    )
    row.announce(1)
    exposition = Exposition(ProxyCollector(FleetView(memory), gauges.refresh, upstream=True), gauges)
    slices = []

    async def others() -> None:
        while True:
            began = thread_time()
            await asyncio.sleep(0)
            slices.append(thread_time() - began)

    beside = asyncio.create_task(others())
    for _ in range(3):
        slices.clear()
        await exposition.render("")
    beside.cancel()
    return sum(slices) * 1e3, max(slices) * 1e3


def main() -> int:
    """Print the table; 1 when the metrics cost more than they may."""
    memory = SharedMetrics.private()
    row = memory.rows[0]
    counters = Counters(row, ModelNames(lambda: ["m"]))
    gap = Histogram(row, names.PIECE_GAP_SECONDS)
    whole, streamed = finished(stream=False), finished(stream=True)
    metrics = {
        "metrics, whole answer": microseconds(lambda: counters.settle(whole, SCOPE)),
        "metrics, streamed answer": microseconds(lambda: counters.settle(streamed, SCOPE)),
        "time spent waiting, both legs": _watching(),
        f"gaps between pieces, one stream of {ONE_OF}, 200 pieces": _gaps(gap.observe),
    }
    others = {"timing headers": microseconds(lambda: timing_headers(streamed))}
    for style in ("text", "json"):
        configure_logging("info", style, access_log=True)
        with Path(os.devnull).open("w") as nowhere:
            logging.getLogger().handlers[0].setStream(nowhere)  # type: ignore[attr-defined]  # a StreamHandler
            others[f"access line, {style}"] = asyncio.run(_lines(streamed))
    with tempfile.TemporaryDirectory() as directory:
        log = RequestLog(Path(directory), 0, row, most_bytes=1 << 30, most_files=2, most_waiting=1 << 30)

        def logged() -> None:
            for _ in range(ROUNDS):
                log.settle(streamed, SCOPE)

        began = process_time()
        logged()
        log.close()
        others["request log, its thread included"] = (process_time() - began) / ROUNDS * 1e6
    for name, cost in {**metrics, **others}.items():
        print(f"{name:60} {cost:6.2f} us")
    cpu, longest = asyncio.run(_scrape())
    print(f"{'a scrape, 1,000 workers in each role':60} {cpu:6.1f} ms, in slices of at most {longest:.1f} ms")
    total = metrics["metrics, streamed answer"] + sum(list(metrics.values())[2:])
    print(f"{'all metrics of a streamed request':60} {total:6.2f} us (at most {LIMIT:g})")
    return int(total > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
