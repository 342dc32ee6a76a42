"""The metrics of `trtllm-serve disaggregated` made of ours."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from proxy.telemetry import names
from proxy.telemetry.collector import ProxyCollector
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.series import Counter, Histogram
from proxy.telemetry.shared import SharedMetrics
from proxy.telemetry.upstream_names import COUNTERS, HISTOGRAMS

CHAT = "/v1/chat/completions"
# As `trtllm-serve disaggregated` declares them.
UPSTREAM = {
    *("total_requests", "stream_requests", "nonstream_requests"),
    *("validation_exceptions", "http_exceptions", "internal_errors", "total_responses"),
    "queue_latency_seconds",
    *(
        f"{leg}_{name}"
        for leg in ("ctx", "gen")
        for name in (
            *("total_requests", "error_requests", "retry_requests", "completed_requests"),
            *("first_token_latency_seconds", "complete_latency_seconds", "per_token_latency_seconds"),
        )
    ),
}


class World:
    def __init__(self) -> None:
        self.memory = SharedMetrics.private()
        self.row = self.memory.rows[0]
        self.registry = CollectorRegistry()
        self.registry.register(ProxyCollector(FleetView(self.memory), lambda: None, upstream=True))

    def count(self, metric: names.Metric, *labels: str, times: int = 1) -> None:
        Counter(self.row, metric).add(times, labels)

    def samples(self) -> dict[str, float]:
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        return {
            sample.name + (f" {sample.labels['le']}" if "le" in sample.labels else ""): sample.value
            for family in families
            for sample in family.samples
            if not family.name.startswith(names.PREFIX)
        }


def test_all_names_of_upstream_are_there() -> None:
    assert {row.name for row in (*COUNTERS, *HISTOGRAMS)} == UPSTREAM
    samples = World().samples()
    assert {f"{row.name}_total" for row in COUNTERS} <= samples.keys()
    for row in HISTOGRAMS:
        assert samples[f"{row.name}_count"] == 0
        assert samples[f"{row.name}_bucket +Inf"] == 0


def test_counters_are_sums() -> None:
    world = World()
    world.count(names.REQUESTS, CHAT, "m", "true", "ok", times=3)
    world.count(names.REQUESTS, "/v1/completions", "m", "false", "error", times=2)
    world.count(names.REQUESTS, CHAT, "m", "false", "rejected", times=50)
    world.count(names.REQUESTS, CHAT, "m", "false", "client_closed", times=7)
    world.count(names.REQUESTS, "/health", "", "false", "ok", times=500)
    world.count(names.ERRORS, "client", "invalid_json", times=50)
    world.count(names.ERRORS, "client", "client_closed", times=7)
    world.count(names.ERRORS, "gen", "worker_disconnected", times=2)
    world.count(names.ERRORS, "proxy", "internal_error")
    world.count(names.PLACEMENTS, "context", "a:1", times=9)
    world.count(names.PLACEMENTS, "generation", "b:1", times=8)
    world.count(names.WORKER_LEGS, "context", "a:1", "ok", times=7)
    world.count(names.WORKER_LEGS, "context", "a:1", "reset", times=2)
    world.count(names.WORKER_LEGS, "generation", "b:1", "cancelled", times=4)
    world.count(names.RETRIES, "context", times=2)
    expected = {
        "total_requests": 12,
        "stream_requests": 3,
        "nonstream_requests": 9,
        "total_responses": 5,
        "validation_exceptions": 50,
        "http_exceptions": 2,
        "internal_errors": 1,
        "ctx_total_requests": 9,
        "ctx_completed_requests": 9,
        "ctx_error_requests": 2,
        "ctx_retry_requests": 2,
        "gen_total_requests": 8,
        "gen_completed_requests": 4,
        "gen_error_requests": 0,
        "gen_retry_requests": 0,
    }
    samples = world.samples()
    assert {name: samples[f"{name}_total"] for name in expected} == expected
    assert len(expected) == len(COUNTERS)


def test_histograms_keep_upstreams_bounds() -> None:
    world = World()
    legs = Histogram(world.row, names.LEG_SECONDS)
    for seconds in (0.001, 0.1, 0.11, 0.3, 1900, 1e6):
        legs.observe(seconds, ("context",))
    legs.observe(5.0, ("generation",))
    samples = world.samples()
    name = "ctx_complete_latency_seconds"
    buckets = [samples[f"{name}_bucket {bound}"] for bound in ("0.1", "0.3", "0.5", "1920.0", "+Inf")]
    assert buckets == [2, 4, 4, 5, 6]
    assert samples[f"{name}_sum"] == pytest.approx(1_001_900.511)
    assert samples["gen_complete_latency_seconds_bucket 2.5"] == 0
    assert samples["gen_complete_latency_seconds_bucket 5.0"] == 1


@pytest.mark.parametrize(
    "row", [row for row in HISTOGRAMS if row.metric is not None], ids=lambda row: row.name
)
def test_bounds_are_exact(row) -> None:
    """A bound of upstream's that we do not count apart would move observations to another bucket."""
    assert set(row.buckets) <= set(row.metric.buckets)


@pytest.mark.parametrize("row", [*COUNTERS, *HISTOGRAMS], ids=lambda row: row.name)
def test_labels_exist(row) -> None:
    if row.metric is not None:
        assert set(row.only) | set(getattr(row, "but", {})) <= set(row.metric.labels)
