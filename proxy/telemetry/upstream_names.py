"""The metrics of `trtllm-serve disaggregated` under its own names, so that existing panels go on working.

Nothing is counted for them: each is made of the proxy's own series at the moment of a scrape. Two of upstream's never
have observations, there as here, because context legs are not streamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from proxy.telemetry import names

if TYPE_CHECKING:
    from proxy.telemetry.fleet_view import FleetView
    from proxy.telemetry.shared import Labels

_ROUTES = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate", "/inference/v1/generate"}
)
_CONTEXT = frozenset({"context"})
_GENERATION = frozenset({"generation"})
_FAILED = frozenset({"client_error", "server_error", "busy", "connect_failed", "reset", "timeout"})
_CLIENT = frozenset({"client"})
_INTERNAL = frozenset({"internal_error"})


class SameCounter(NamedTuple):
    """The sum of the series of `metric` that have, per label, one of the values `only`, none of the values `but`."""

    name: str
    documentation: str
    metric: names.Metric
    only: dict[str, frozenset[str]]
    but: dict[str, frozenset[str]]


class SameHistogram(NamedTuple):
    """The sum of the series of `metric` that have, per label, one of the values `only`; its buckets are among those
    of the metric, None: there are no observations."""

    name: str
    documentation: str
    metric: names.Metric | None
    buckets: tuple[float, ...]
    only: dict[str, frozenset[str]]


_INFERENCE = {"route": _ROUTES}
_INVALID = {"outcome": frozenset({"rejected"})}
_UNANSWERED = {"outcome": frozenset({"rejected", "client_closed"})}

COUNTERS = (
    SameCounter("total_requests", "Valid requests.", names.REQUESTS, _INFERENCE, _INVALID),
    SameCounter(
        "stream_requests",
        "Valid streaming requests.",
        names.REQUESTS,
        _INFERENCE | {"stream": frozenset({"true"})},
        _INVALID,
    ),
    SameCounter(
        "nonstream_requests",
        "Valid requests for one whole answer.",
        names.REQUESTS,
        _INFERENCE | {"stream": frozenset({"false"})},
        _INVALID,
    ),
    SameCounter("total_responses", "Answers.", names.REQUESTS, _INFERENCE, _UNANSWERED),
    SameCounter(
        "validation_exceptions",
        "Requests that were wrong.",
        names.ERRORS,
        {"source": _CLIENT},
        {"code": frozenset({"client_closed", "key_limit"})},
    ),
    SameCounter(
        "http_exceptions",
        "Requests that failed.",
        names.ERRORS,
        {},
        {"source": _CLIENT, "code": _INTERNAL},
    ),
    SameCounter("internal_errors", "Bugs of the proxy.", names.ERRORS, {"code": _INTERNAL}, {}),
    SameCounter("ctx_total_requests", "Context legs.", names.PLACEMENTS, {"role": _CONTEXT}, {}),
    SameCounter(
        "ctx_error_requests",
        "Context legs that failed.",
        names.WORKER_LEGS,
        {"role": _CONTEXT, "outcome": _FAILED},
        {},
    ),
    SameCounter("ctx_retry_requests", "Context legs sent again.", names.RETRIES, {"role": _CONTEXT}, {}),
    SameCounter("ctx_completed_requests", "Ended context legs.", names.WORKER_LEGS, {"role": _CONTEXT}, {}),
    SameCounter("gen_total_requests", "Generation legs.", names.PLACEMENTS, {"role": _GENERATION}, {}),
    SameCounter(
        "gen_error_requests",
        "Generation legs that failed.",
        names.WORKER_LEGS,
        {"role": _GENERATION, "outcome": _FAILED},
        {},
    ),
    SameCounter(
        "gen_retry_requests", "Generation legs sent again.", names.RETRIES, {"role": _GENERATION}, {}
    ),
    SameCounter(
        "gen_completed_requests", "Ended generation legs.", names.WORKER_LEGS, {"role": _GENERATION}, {}
    ),
)

HISTOGRAMS = (
    SameHistogram("queue_latency_seconds", "Time in the queue.", names.QUEUE_SECONDS, names.SHORT, {}),
    SameHistogram("ctx_first_token_latency_seconds", "Context legs are not streamed.", None, names.SHORT, {}),
    SameHistogram(
        "ctx_complete_latency_seconds",
        "Time of context legs.",
        names.LEG_SECONDS,
        names.LONG,
        {"role": _CONTEXT},
    ),
    SameHistogram("ctx_per_token_latency_seconds", "Context legs are not streamed.", None, names.SHORT, {}),
    SameHistogram(
        "gen_first_token_latency_seconds",
        "From a streamed generation leg to its first piece.",
        names.GENERATION_FIRST_BYTE_SECONDS,
        names.SHORT,
        {},
    ),
    SameHistogram(
        "gen_complete_latency_seconds",
        "Time of generation legs.",
        names.LEG_SECONDS,
        names.LONG,
        {"role": _GENERATION},
    ),
    SameHistogram(
        "gen_per_token_latency_seconds",
        "Between two pieces of a stream, in one stream of sixteen.",
        names.PIECE_GAP_SECONDS,
        names.SHORT,
        {},
    ),
)


_PLACES = {
    metric: frozenset(
        metric.labels.index(label)
        for row in COUNTERS
        if row.metric is metric
        for label in (*row.only, *row.but)
    )
    for metric in {row.metric for row in COUNTERS}
}
"""Where in the labels of each metric those are that the table above asks for."""


def collect_upstream(view: FleetView) -> Iterator[Metric | None]:
    """All of them, of the whole fleet; None in between where it takes long."""
    # By the labels that matter here: not by worker, of which there may be thousands.
    counts: dict[str, dict[Labels, int]] = {}
    for metric, asked in _PLACES.items():
        sums = counts[metric.name] = {}
        for chunk in view.counter_chunks(metric):
            for labels, number in chunk.items():
                kept = tuple(value if at in asked else "" for at, value in enumerate(labels))
                sums[kept] = sums.get(kept, 0) + number
            yield None
    for row in COUNTERS:
        found = counts[row.metric.name]
        total = sum(number for labels, number in found.items() if _wanted(row, row.metric, labels))
        counter = CounterMetricFamily(row.name, row.documentation)
        counter.add_metric((), total)
        yield counter
    for same in HISTOGRAMS:
        buckets = [0] * (len(same.buckets) + 1)
        seconds = 0.0
        if same.metric is not None:
            rising = [*same.metric.buckets, float("inf")]
            # A bucket of the metric belongs to the first of these bounds that is not below its own.
            places = [sum(bound < own for bound in same.buckets) for own in rising]
            for labels, observed in view.histograms(same.metric).items():
                if _has(same.only, same.metric, labels):
                    seconds += observed.sum
                    for place, number in zip(places, observed.buckets, strict=True):
                        buckets[place] += number
        histogram = HistogramMetricFamily(same.name, same.documentation)
        bounds = [*map(floatToGoString, same.buckets), "+Inf"]
        histogram.add_metric((), list(zip(bounds, accumulate(buckets), strict=True)), seconds)
        yield histogram


def _wanted(row: SameCounter, metric: names.Metric, labels: Labels) -> bool:
    if not _has(row.only, metric, labels):
        return False
    return not any(
        value in row.but.get(label, ()) for label, value in zip(metric.labels, labels, strict=True)
    )


def _has(only: dict[str, frozenset[str]], metric: names.Metric, labels: Labels) -> bool:
    return all(labels[metric.labels.index(label)] in values for label, values in only.items())
