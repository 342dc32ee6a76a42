"""Makes `dashboard.json`: `python deploy/observability/dashboard.py > deploy/observability/dashboard.json`.

The panels are the literal table `ROWS`.
"""

import json
import sys

from grafana import Panel, Rows, document
from queries import mean, quantiles, rare, rate, selected, total

INFERENCE = 'route=~"/v1/(chat/)?completions"'
FAILED = 'outcome="error"'
ERROR_RATIO = f"{rate('requests', INFERENCE, FAILED)} / {rate('requests', INFERENCE)} or vector(0)"

ROWS: Rows = (
    (
        "Overview",
        (
            Panel(
                "Ready",
                "short",
                ((total("ready", how="min"), "ready"), (total("processes"), "processes")),
                "stat",
                "1 when every process could serve a request; processes that serve.",
            ),
            Panel(
                "Error ratio",
                "percentunit",
                ((ERROR_RATIO, "errors"),),
                "stat",
                "Answers with 5xx and streams that broke off.",
            ),
            Panel(
                "Version",
                "short",
                ((total("build", by="version, python", how="count"), "{{version}}, Python {{python}}"),),
                "stat",
            ),
            Panel("Requests", "reqps", ((rate("requests", INFERENCE, by="outcome"), "{{outcome}}"),)),
            Panel(
                "Requests by model",
                "reqps",
                ((rate("requests", INFERENCE, by="model, stream"), "{{model}} stream={{stream}}"),),
            ),
            Panel(
                "In flight and waiting",
                "short",
                (
                    (total("requests_in_flight"), "in flight"),
                    (total("admitted_requests"), "admitted"),
                    (total("queued_requests"), "queued"),
                ),
            ),
            Panel(
                "Time to first byte",
                "s",
                quantiles("first_byte_seconds"),
                text="Streams: from the request's arrival.",
            ),
            Panel("Time of whole requests", "s", quantiles("request_seconds", by="stream")),
            Panel(
                "Where the time goes",
                "s",
                (
                    (mean("queue_seconds"), "queue"),
                    (mean("leg_seconds", 'role="context"'), "context leg"),
                    (mean("hand_off_seconds"), "hand-off"),
                    (mean("leg_seconds", 'role="generation"'), "generation leg"),
                    (mean("overhead_seconds"), "proxy"),
                ),
                text="Means per request. Is the proxy the bottleneck, and which leg is slow?",
            ),
        ),
    ),
    (
        "Legs",
        (
            Panel("Context leg", "s", quantiles("leg_seconds", 'role="context"')),
            Panel("Generation leg", "s", quantiles("leg_seconds", 'role="generation"')),
            Panel(
                "Hand-off",
                "s",
                quantiles("hand_off_seconds"),
                text="From the context worker's answer to sending the generation leg.",
            ),
            Panel(
                "First byte of the generation leg",
                "s",
                quantiles("generation_first_byte_seconds"),
                text="Streams: from sending the leg.",
            ),
            Panel(
                "Gap between pieces",
                "s",
                quantiles("piece_gap_seconds"),
                text="Measured in one stream of sixteen.",
            ),
            Panel(
                "Legs sent again",
                "ops",
                ((rare("retries", "role"), "{{role}}"), (rate("retries_refused"), "refused by the budget")),
            ),
            Panel("Requests without context leg", "reqps", ((rare("bypasses", "reason"), "{{reason}}"),)),
        ),
    ),
    (
        "Workers",
        (
            Panel(
                "Legs in flight",
                "short",
                ((total("worker_in_flight", by="role, worker"), "{{role}} {{worker}}"),),
            ),
            Panel("Legs placed", "ops", ((rate("placements", by="role, worker"), "{{role}} {{worker}}"),)),
            Panel(
                "Legs that failed",
                "ops",
                (
                    (
                        rate("worker_legs", 'outcome!~"ok|cancelled"', by="role, worker, outcome")
                        + " or vector(0)",
                        "{{worker}} {{outcome}}",
                    ),
                ),
            ),
            Panel(
                "State",
                "short",
                (
                    (total("worker_state", by="role, state"), "{{role}} {{state}}"),
                    (total("worker_ready", by="role"), "{{role}} ready everywhere"),
                ),
                text="Processes that see a worker in this state, over all workers.",
            ),
            Panel(
                "Breakers", "short", ((total("worker_breaker", by="worker, state"), "{{worker}} {{state}}"),)
            ),
            Panel(
                "Ejections",
                "ops",
                (
                    (rare("worker_ejections", "worker, reason"), "{{worker}} {{reason}}"),
                    (rare("placements_last_resort", "role"), "last resort {{role}}"),
                ),
            ),
            Panel("Refusals of busy workers", "ops", ((rare("worker_busy", "worker"), "{{worker}}"),)),
            Panel(
                "Health probe", "s", ((total("worker_probe_seconds", by="worker", how="max"), "{{worker}}"),)
            ),
            Panel(
                "Connections to workers",
                "short",
                ((total("worker_connections", by="role, state"), "{{role}} {{state}}"),),
            ),
            Panel(
                "Time per worker",
                "s",
                ((mean("worker_seconds", by="role, worker"), "{{role}} {{worker}}"),),
                text="Mean: of whole context legs, and to the first byte of streamed generation legs.",
            ),
            Panel(
                "Sources of workers: age",
                "s",
                ((total("discovery_age_seconds", by="source", how="max"), "{{source}}"),),
                text="Since a source last told a list that is right, changed or not.",
            ),
            Panel(
                "Sources of workers",
                "short",
                (
                    (total("discovery_workers", by="source", how="max"), "{{source}} workers"),
                    (rare("discovery_errors", "source"), "{{source}} errors per second"),
                ),
            ),
            Panel("Affinity", "ops", ((rare("affinity", "role, result"), "{{role}} {{result}}"),)),
        ),
    ),
    (
        "Saturation",
        (
            Panel(
                "The proxy's own time",
                "s",
                quantiles("overhead_seconds", by="stream"),
                text="Of a request: without the queue, workers and clients.",
            ),
            Panel(
                "Event loop lag",
                "s",
                ((selected("event_loop_lag_seconds"), "{{instance}} process {{process}}"),),
            ),
            Panel("Time in the queue", "s", quantiles("queue_seconds")),
            Panel("Bytes that wait", "bytes", ((total("queued_bytes"), "queued"),)),
            Panel(
                "Refused at the door",
                "reqps",
                ((rare("refused", "code"), "{{code}}"), (total("paused", how="max"), "paused")),
            ),
            Panel("Connections of clients", "short", ((total("connections"), "open"),)),
            Panel(
                "Bytes",
                "Bps",
                (
                    (rate("request_bytes", INFERENCE), "requests"),
                    (rate("response_bytes", INFERENCE), "answers"),
                ),
            ),
        ),
    ),
    (
        "Errors",
        (
            Panel(
                "Errors of the proxy's own",
                "reqps",
                ((rare("errors", "source, code"), "{{source}} {{code}}"),),
            ),
            Panel("Streams cut inside an event", "reqps", ((rate("cut_inside_event"), "cut"),)),
            Panel(
                "Hand-offs without an answer",
                "ops",
                ((rare("orphans", "outcome"), "{{outcome}}"), (total("orphan_legs"), "draining now")),
            ),
            Panel(
                "Fields left out",
                "ops",
                ((f"topk(10, {rate('dropped_fields', by='field')}) or vector(0)", "{{field}}"),),
            ),
            Panel(
                "Processes that ended unasked",
                "ops",
                ((rare("process_restarts", "process"), "process {{process}}"),),
            ),
            Panel("Request log: lost lines", "ops", ((rate("request_log_dropped"), "lost"),)),
            Panel(
                "Trainers' calls to workers",
                "ops",
                ((rare("fanout_calls", "path, outcome"), "{{path}} {{outcome}}"),),
            ),
        ),
    ),
    (
        "Tokenisation by the proxy",
        (
            Panel(
                "Prompts by who tokenised them",
                "reqps",
                ((rate("tokenisations", by="by, reason"), "{{by}} {{reason}}"),),
                text="The reasons are why the worker did: shadow = to compare, busy = no thread was free.",
            ),
            Panel(
                "Compared with the workers",
                "reqps",
                (
                    (rate("tokenisation_comparisons", by="result"), "{{result}}"),
                    (total("tokenisation_on", how="min"), "on"),
                ),
                text="Too many differences switch it off until the next start.",
            ),
            Panel("Time of one prompt", "s", quantiles("tokenisation_seconds")),
        ),
    ),
)


if __name__ == "__main__":
    json.dump(document(ROWS), sys.stdout, indent=1)
    sys.stdout.write("\n")
