"""All metrics, in one table. Whoever adds a feature adds its rows."""

from typing import Literal, NamedTuple

PREFIX = "disagg_proxy_"

Merge = Literal["sum", "min", "max", "process"]


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: without prefix and without `_total`.
        documentation: help text.
        labels: label names.
        kind: what it is; a histogram has `buckets`.
        merge: how one value comes of the gauges of a fleet's processes; `process` keeps them apart with a label of
            that name. Counters and histograms are always summed.
        most: label sets beyond this number are counted as `other`, per process.
        buckets: upper bounds, rising, without the infinite one.
    """

    name: str
    documentation: str
    labels: tuple[str, ...] = ()
    kind: Literal["counter", "gauge", "histogram"] = "counter"
    merge: Merge = "sum"
    most: int = 10_000
    buckets: tuple[float, ...] = ()


REQUESTS = Metric("requests", "Finished requests.", ("route", "stream", "outcome"))
REQUEST_BYTES = Metric("request_bytes", "Bytes of request bodies.", ("route",))
RESPONSE_BYTES = Metric("response_bytes", "Bytes of answers' bodies.", ("route",))
DROPPED_FIELDS = Metric(
    # Field names come from clients.
    "dropped_fields",
    "Request members left out because workers refuse them.",
    ("field",),
    most=200,
)
RETRIES = Metric("retries", "Legs that were sent again.")
BYPASSES = Metric("bypasses", "Requests that took no context leg.", ("reason",))
CUT_INSIDE_EVENT = Metric(
    "cut_inside_event", "Streams that broke off inside an event, so that no error event could be added."
)
ADMITTED_REQUESTS = Metric(
    "admitted_requests", "Requests between their admission and their end.", kind="gauge"
)
QUEUED_REQUESTS = Metric("queued_requests", "Requests that wait for their admission.", kind="gauge")
QUEUED_BYTES = Metric("queued_bytes", "Bytes of the bodies of requests that wait.", kind="gauge")
PAUSED = Metric(
    "paused", "1 when a process admits nobody until it is told to resume.", kind="gauge", merge="max"
)
REFUSED = Metric("refused", "Requests that were not even queued.", ("code",))
QUEUE_SECONDS = Metric(
    "queue_seconds",
    "Time in the queue of requests that did not enter at once.",
    ("outcome",),
    kind="histogram",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0),
)
ORPHAN_LEGS = Metric("orphan_legs", "Generation legs that run for clients who left.", kind="gauge")
ORPHANS = Metric(
    "orphans",
    "Hand-offs without an answer for their clients: drained by a leg for nobody, or left to expire because that leg "
    "failed, was refused as one too many, or was dropped by policy; lost: the leg that gave it or was to take it has "
    "failed, and nobody knows whether it was taken.",
    ("outcome",),
)
REQUESTS_IN_FLIGHT = Metric("requests_in_flight", "Requests whose answer is not complete.", kind="gauge")
CONNECTIONS = Metric("connections", "Open connections of clients.", kind="gauge")
WORKER_IN_FLIGHT = Metric("worker_in_flight", "Legs running on a worker.", ("role", "worker"), kind="gauge")
WORKER_READY = Metric(
    "worker_ready",
    "1 when every process sends requests to it.",
    ("role", "worker"),
    kind="gauge",
    merge="min",
)
WORKER_CONNECTIONS = Metric(
    "worker_connections", "Open connections to a worker.", ("role", "worker", "state"), kind="gauge"
)
WORKER_STATE = Metric(
    "worker_state",
    "Processes that see a worker in this state; only states in which one sees it are told.",
    ("role", "worker", "state"),
    kind="gauge",
)
WORKER_BREAKER = Metric(
    "worker_breaker",
    "Processes whose circuit breaker for a worker is in this state.",
    ("worker", "state"),
    kind="gauge",
)
WORKER_PROBE_SECONDS = Metric(
    "worker_probe_seconds",
    "How long the last successful health probe took.",
    ("worker",),
    kind="gauge",
    merge="max",
)
WORKER_EJECTIONS = Metric("worker_ejections", "Ejections of a worker.", ("worker", "reason"))
WORKER_BUSY = Metric("worker_busy", "Legs that a worker refused with 429 or 503.", ("worker",))
PLACEMENTS = Metric("placements", "Legs placed on a worker.", ("role", "worker"))
PLACEMENTS_LAST_RESORT = Metric(
    "placements_last_resort", "Legs placed on an ejected worker because there was no other.", ("role",)
)
AFFINITY = Metric(
    "affinity",
    "Placements by a conversation's key: on its first choice (hit), on another one because of load (spill), "
    "without a key (miss).",
    ("role", "result"),
)
READY = Metric("ready", "1 when every process could serve a request.", kind="gauge", merge="min")
LOOP_LAG = Metric(
    "event_loop_lag_seconds",
    "The longest time an event was late in the last second or two.",
    kind="gauge",
    merge="process",
)
PROCESSES = Metric("processes", "Processes that serve.", kind="gauge")
PROCESS_RESTARTS = Metric(
    "process_restarts", "Processes that ended unasked and were started again.", ("process",)
)
BUILD = Metric("build", "Versions.", ("version", "python"), kind="gauge")

ALL: tuple[Metric, ...] = tuple(
    metric
    for metric in list(globals().values())
    if isinstance(metric, Metric) and metric not in (PROCESSES, BUILD)
)
"""What is rendered from the shared memory; the other two are known at the scrape."""
