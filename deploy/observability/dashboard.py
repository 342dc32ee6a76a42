"""Makes `dashboard.json` for Grafana 10 and newer: `python deploy/observability/dashboard.py > .../dashboard.json`.

The panels are the literal table `ROWS`; their numbers are their places in it, so that a change of one panel changes
few lines of the result.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

PREFIX = "disagg_proxy_"
CHOSEN = 'job=~"$job", instance=~"$instance"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _ACROSS = 8, 7, 24


class Panel(NamedTuple):
    """One panel.

    Attributes:
        title: what it shows.
        unit: of Grafana.
        queries: expression and legend of each.
        kind: of Grafana.
        text: what it means, shown on request.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    text: str = ""


def selected(metric: str, *conditions: str) -> str:
    """A series of ours, of the chosen jobs and instances."""
    return f"{PREFIX}{metric}{{{', '.join([CHOSEN, *conditions])}}}"


def rate(metric: str, *conditions: str, by: str = "") -> str:
    """Events per second."""
    return f"sum{_by(by)} (rate({selected(metric + '_total', *conditions)}[$__rate_interval]))"


def rare(metric: str, by: str = "") -> str:
    """Events per second of a kind that has no series until the first one; 0 until then."""
    return f"{rate(metric, by=by)} or vector(0)"


def total(metric: str, *conditions: str, by: str = "", how: str = "sum") -> str:
    """A gauge over all instances."""
    return f"{how}{_by(by)} ({selected(metric, *conditions)})"


def quantiles(metric: str, *conditions: str, by: str = "") -> tuple[tuple[str, str], ...]:
    """Half, 95 and 99 of 100 of what a histogram has observed are below these."""
    labels = f"le, {by}" if by else "le"
    seen = f"sum{_by(labels)} (rate({selected(metric + '_bucket', *conditions)}[$__rate_interval]))"
    legend = f" {{{{{by}}}}}" if by else ""
    return tuple(
        (f"histogram_quantile({part}, {seen})", f"p{part * 100:g}{legend}") for part in (0.5, 0.95, 0.99)
    )


def mean(metric: str, *conditions: str, by: str = "") -> str:
    """The mean of what a histogram has observed."""
    parts = [
        f"sum{_by(by)} (rate({selected(f'{metric}_{end}', *conditions)}[$__rate_interval]))"
        for end in ("sum", "count")
    ]
    return " / ".join(parts)


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


INFERENCE = 'route=~"/v1/(chat/)?completions"'
FAILED = 'outcome="error"'
ERROR_RATIO = f"{rate('requests', INFERENCE, FAILED)} / {rate('requests', INFERENCE)} or vector(0)"

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
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


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": "disagg-proxy",
        "title": "disagg-proxy",
        "tags": ["llm", "disagg-proxy"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    known = f"{PREFIX}processes"
    for name, query in (
        ("job", f"label_values({known}, job)"),
        ("instance", f'label_values({known}{{job=~"$job"}}, instance)'),
    ):
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "includeAll": True,
            "allValue": ".+",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[dict[str, Any]]:
    top = 0
    for row, (title, panels) in enumerate(ROWS, start=1):
        yield {
            "id": row * 100,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": _ACROSS, "h": 1},
            "panels": [],
        }
        top += 1
        for place, panel in enumerate(panels):
            x = place * _WIDTH % _ACROSS
            yield _panel(panel, row * 100 + place + 1, x, top + place * _WIDTH // _ACROSS * _HEIGHT)
        top += (len(panels) * _WIDTH + _ACROSS - 1) // _ACROSS * _HEIGHT


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    custom = {} if panel.kind == "stat" else {"custom": {"fillOpacity": 10, "showPoints": "never"}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **custom}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "range": panel.kind != "stat",
                "instant": panel.kind == "stat",
            }
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1)
    sys.stdout.write("\n")
