from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from proxy.telemetry.collector import ProxyCollector
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.names import ALL, Metric
from proxy.telemetry.series import Counter, Gauge, Histogram
from proxy.telemetry.shared import SharedMetrics

TABLE = (
    Metric("requests", "Requests.", ("route",)),
    Metric("load", "Load.", ("worker",), kind="gauge"),
    Metric("lag_seconds", "Lag.", kind="gauge", merge="process"),
    Metric("latency_seconds", "Latency.", ("leg",), kind="histogram", buckets=(0.1, 1.0)),
)


def test_rendering() -> None:
    row = SharedMetrics.private().rows[0]
    memory = SharedMetrics.private()
    row = memory.rows[0]
    row.open()
    row.announce(1)
    Counter(row, TABLE[0]).add(3, ("/v1/completions",))
    Gauge(row, TABLE[1]).set(2, ('a"b',))
    Gauge(row, TABLE[2]).set(0.5)
    for value in (0.05, 0.5, 5.0):
        Histogram(row, TABLE[3]).observe(value, ("context",))
    refreshed = []
    registry = CollectorRegistry()
    registry.register(ProxyCollector(FleetView(memory), lambda: refreshed.append(1), TABLE))
    refreshed.clear()
    text = generate_latest(registry).decode()
    assert refreshed == [1]
    lines = [line for line in text.splitlines() if not line.startswith("#") and "_build" not in line]
    assert lines == [
        'disagg_proxy_requests_total{route="/v1/completions"} 3.0',
        'disagg_proxy_load{worker="a\\"b"} 2.0',
        'disagg_proxy_lag_seconds{process="0"} 0.5',
        'disagg_proxy_latency_seconds_bucket{le="0.1",leg="context"} 1.0',
        'disagg_proxy_latency_seconds_bucket{le="1.0",leg="context"} 2.0',
        'disagg_proxy_latency_seconds_bucket{le="+Inf",leg="context"} 3.0',
        'disagg_proxy_latency_seconds_count{leg="context"} 3.0',
        'disagg_proxy_latency_seconds_sum{leg="context"} 5.55',
        "disagg_proxy_processes 1.0",
    ]
    assert "# EOF" in generate_openmetrics(registry).decode()


def test_every_metric_of_the_table_is_rendered() -> None:
    memory = SharedMetrics.private()
    registry = CollectorRegistry()
    registry.register(ProxyCollector(FleetView(memory), lambda: None))
    names = [family.name for family in text_string_to_metric_families(generate_latest(registry).decode())]
    assert names == [f"disagg_proxy_{metric.name}" for metric in ALL] + [
        "disagg_proxy_processes",
        "disagg_proxy_build",
    ]
    assert len(set(names)) == len(names)


def test_the_table_is_consistent() -> None:
    for metric in ALL:
        assert metric.kind == "histogram" or not metric.buckets, metric.name
        assert list(metric.buckets) == sorted(metric.buckets)
        assert "process" not in metric.labels or metric.kind == "counter"
