"""All metrics, in one table. Whoever adds a feature adds its rows.

Model names come from clients: those that no worker tells and no alias names are counted as `other`.
"""

from typing import Literal, NamedTuple

PREFIX = "disagg_proxy_"

Merge = Literal["sum", "min", "max", "process"]


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: without prefix and without `_total`.
        documentation: help text.
        labels: label names.
        kind: what it is; a histogram without `buckets` tells number and sum.
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


# The bounds of `trtllm-serve disaggregated` for single steps and for whole legs: series under its names come of these.
SHORT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0, 160.0, 640.0, 2560.0),
)
LONG = (
    *(0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0),
)
_BOTH = tuple(sorted({*SHORT, *LONG}))
_FINE = (
    0.0001,
    0.0002,
    0.0003,
    0.0005,
    0.00075,
    0.001,
    0.0015,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.1,
    0.5,
    1.0,
    5.0,
)

REQUESTS = Metric("requests", "Finished requests.", ("route", "model", "stream", "outcome"))
ERRORS = Metric(
    "errors",
    "Requests that ended with an error of the proxy's own, by whose fault it was.",
    ("source", "code"),
)
REQUEST_SECONDS = Metric(
    "request_seconds",
    "From the arrival of a request that got a worker to the end of its answer.",
    ("model", "stream"),
    kind="histogram",
    buckets=_BOTH,
)
OVERHEAD_SECONDS = Metric(
    "overhead_seconds",
    "What the proxy itself takes of such a request: its whole time without that for the queue, workers, pauses "
    "between retries and, once a stream is relayed, its client.",
    ("stream",),
    kind="histogram",
    buckets=_FINE,
)
LEG_SECONDS = Metric(
    "leg_seconds",
    "From sending a leg to the end of its answer; of legs that were sent again the last one.",
    ("role",),
    kind="histogram",
    buckets=_BOTH,
)
HAND_OFF_SECONDS = Metric(
    "hand_off_seconds",
    "From the context worker's answer to sending the generation leg.",
    kind="histogram",
    buckets=_FINE,
)
FIRST_BYTE_SECONDS = Metric(
    "first_byte_seconds",
    "From the arrival of a streaming request to the first byte of its answer.",
    ("model",),
    kind="histogram",
    buckets=SHORT,
)
GENERATION_FIRST_BYTE_SECONDS = Metric(
    "generation_first_byte_seconds",
    "From sending the generation leg of a streaming request to the first byte of its answer.",
    kind="histogram",
    buckets=SHORT,
)
PIECE_GAP_SECONDS = Metric(
    "piece_gap_seconds",
    "Between two pieces of a stream, in one stream of sixteen.",
    kind="histogram",
    buckets=SHORT,
)
REQUEST_BYTES = Metric("request_bytes", "Bytes of request bodies.", ("route",))
RESPONSE_BYTES = Metric("response_bytes", "Bytes of answers' bodies.", ("route",))
DROPPED_FIELDS = Metric(
    # Field names come from clients.
    "dropped_fields",
    "Request members left out because workers refuse them.",
    ("field",),
    most=200,
)
RETRIES = Metric("retries", "Legs that were sent again.", ("role",))
RETRIES_REFUSED = Metric("retries_refused", "Retries that the retry budget did not allow.")
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
    "Time in the queue; zero for requests that entered at once.",
    ("outcome",),
    kind="histogram",
    buckets=SHORT,
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
WORKER_LEGS = Metric(
    "worker_legs", "Legs of a worker that have ended, by outcome.", ("role", "worker", "outcome")
)
WORKER_SECONDS = Metric(
    "worker_seconds",
    "Of a worker's legs: the whole time of a context leg, the time to the first byte of a streamed generation leg.",
    ("role", "worker"),
    kind="histogram",
)
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
DISCOVERY_AGE_SECONDS = Metric(
    "discovery_age_seconds",
    "Time since a source of workers last told a list that is right, changed or not; since the start if it never has.",
    ("source",),
    kind="gauge",
    merge="max",
)
DISCOVERY_WORKERS = Metric(
    "discovery_workers", "Workers in the last list of a source.", ("source",), kind="gauge", merge="max"
)
DISCOVERY_ERRORS = Metric(
    "discovery_errors", "How often a source of workers could not tell its list.", ("source",)
)
REQUEST_LOG_DROPPED = Metric("request_log_dropped", "Requests that the request log could not take.")
FANOUT_CALLS = Metric(
    "fanout_calls",
    "Calls to single workers on behalf of a trainer: answered with a 2xx (ok), with another status (refused), or not "
    "at all.",
    ("path", "outcome"),
)
READY = Metric("ready", "1 when every process could serve a request.", kind="gauge", merge="min")
LOOP_LAG = Metric(
    "event_loop_lag_seconds",
    "The longest time an event was late in the last second or two.",
    kind="gauge",
    merge="process",
)
TOKENISATIONS = Metric(
    "tokenisations",
    "Prompts of context legs by who made their token ids, the proxy or the worker, and why the worker did.",
    ("by", "reason"),
)
TOKENISATION_SECONDS = Metric(
    "tokenisation_seconds",
    "How long prompts took to become token ids in the proxy, waiting for a thread included.",
    kind="histogram",
    buckets=SHORT,
)
TOKENISATION_COMPARISONS = Metric(
    "tokenisation_comparisons", "Prompts whose token ids were compared with the worker's.", ("result",)
)
TOKENISATION_ON = Metric(
    "tokenisation_on",
    "1 when every process would send token ids of its own; 0 when one has switched it off because of differences.",
    kind="gauge",
    merge="min",
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
