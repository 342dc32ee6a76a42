"""Autoscaling, disruption budget, monitoring."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart import FOLDER, NAME, NAMESPACE, Chart
from chart_options import OPTIONS

from proxy.telemetry import names

PROMTOOL = shutil.which("promtool")
OBSERVABILITY = FOLDER.parents[1] / "observability"
IN_FLIGHT = names.PREFIX + names.REQUESTS_IN_FLIGHT.name
FIRST_BYTE = names.PREFIX + names.FIRST_BYTE_SECONDS.name


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_what_is_scaled_and_kept_exists(chart: Chart, kind: str) -> None:
    rendered = chart.render(**OPTIONS["autoscaling"], **{"workload.kind": kind})
    target = {"apiVersion": "apps/v1", "kind": kind, "name": rendered.workload["metadata"]["name"]}
    assert rendered.get("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"] == target
    rendered = chart.render(**OPTIONS["keda"], **{"workload.kind": kind})
    assert rendered.get("ScaledObject")["spec"]["scaleTargetRef"] == target


def test_autoscaling_by_requests_in_flight(chart: Chart) -> None:
    assert names.REQUESTS_IN_FLIGHT.kind == "gauge"
    spec = chart.render(**OPTIONS["autoscaling"]).get("HorizontalPodAutoscaler")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 10)
    (metric,) = spec["metrics"]
    target = {"type": "AverageValue", "averageValue": "200"}
    assert metric == {"type": "Pods", "pods": {"metric": {"name": IN_FLIGHT}, "target": target}}
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300


def test_autoscaling_by_an_external_metric(chart: Chart) -> None:
    spec = chart.render(**OPTIONS["autoscaling_external"]).get("HorizontalPodAutoscaler")["spec"]
    own, cpu = spec["metrics"]
    assert own["external"]["metric"] == {
        "name": IN_FLIGHT,
        "selector": {"matchLabels": {"service": NAME}},
    }
    assert cpu == OPTIONS["autoscaling_external"]["autoscaling.extraMetrics"][0]


def test_keda_by_time_to_first_token(chart: Chart) -> None:
    spec = chart.render(**OPTIONS["keda"]).get("ScaledObject")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 10)
    first, in_flight, other = spec["triggers"]
    own = f'namespace="{NAMESPACE}", service="{NAME}"'
    assert first["metadata"]["query"] == (
        f"histogram_quantile(0.95, sum by (le) (rate({FIRST_BYTE}_bucket{{{own}}}[2m]))) >= 0 or vector(0)"
    )
    # A time is not divided by the number of pods, requests are.
    assert (first["metricType"], first["metadata"]["threshold"]) == ("Value", "2")
    assert in_flight["metadata"]["query"] == f"sum({IN_FLIGHT}{{{own}}}) or vector(0)"
    assert (in_flight["metricType"], in_flight["metadata"]["threshold"]) == ("AverageValue", "200")
    assert other == OPTIONS["keda"]["keda.extraTriggers"][0]
    assert all(each["authenticationRef"] == {"name": "prometheus"} for each in (first, in_flight))
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == OPTIONS["keda"]["keda.behavior"]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing (Debian package prometheus)")
def test_prometheus_understands_the_queries(chart: Chart, tmp_path: Path) -> None:
    triggers = chart.render(**OPTIONS["keda"]).get("ScaledObject")["spec"]["triggers"][:2]
    recorded = [
        {"record": each["name"].replace("-", "_"), "expr": each["metadata"]["query"]} for each in triggers
    ]
    own = f'namespace="{NAMESPACE}", service="{NAME}"'
    other = f'namespace="{NAMESPACE}", service="other"'
    series = {
        # Half of the streams begin within a second, all within two; two pods.
        f'{FIRST_BYTE}_bucket{{pod="0", le="1", {own}}}': "0x5 0+5x20",
        f'{FIRST_BYTE}_bucket{{pod="0", le="2", {own}}}': "0x5 0+10x20",
        f'{FIRST_BYTE}_bucket{{pod="1", le="1", {own}}}': "0x5 0+5x20",
        f'{FIRST_BYTE}_bucket{{pod="1", le="2", {own}}}': "0x5 0+10x20",
        f'{FIRST_BYTE}_bucket{{pod="1", le="+Inf", {own}}}': "0x5 0+10x20",
        f'{FIRST_BYTE}_bucket{{pod="0", le="+Inf", {own}}}': "0x5 0+10x20",
        f'{IN_FLIGHT}{{pod="0", {own}}}': "3x30",
        f'{IN_FLIGHT}{{pod="1", {own}}}': "4x30",
        f'{IN_FLIGHT}{{pod="0", {other}}}': "100x30",
    }
    expected = {
        ("time_to_first_token", "3m"): 0,  # no streams yet: no number
        ("time_to_first_token", "15m"): 1.9,
        ("requests_in_flight", "3m"): 7,
    }

    def row(name: str, at: str, value: float) -> dict[str, Any]:
        samples = [{"labels": "{}", "value": value}]
        return {"expr": f"round({name}, 0.001)", "eval_time": at, "exp_samples": samples}

    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [row(name, at, value) for (name, at), value in expected.items()],
            },
            {
                "interval": "1m",
                "promql_expr_test": [row(each["record"], "3m", 0) for each in recorded],
            },
        ],
    }
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "keda", "rules": recorded}]}))
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_keda_by_time_alone(chart: Chart) -> None:
    rendered = chart.render(**{"keda.enabled": True, "keda.inFlight": 0})
    (first,) = rendered.get("ScaledObject")["spec"]["triggers"]
    assert first["name"] == "time-to-first-token"
    assert "authenticationRef" not in first
    assert not rendered.all("HorizontalPodAutoscaler")


def test_disruption_budget(chart: Chart) -> None:
    rendered = chart.render()
    spec = rendered.get("PodDisruptionBudget")["spec"]
    assert spec["maxUnavailable"] == 1
    assert "minAvailable" not in spec
    assert spec["selector"] == rendered.workload["spec"]["selector"]
    spec = chart.render(**OPTIONS["budget_minimum"]).get("PodDisruptionBudget")["spec"]
    assert spec["minAvailable"] == "50%"
    assert "maxUnavailable" not in spec
    assert not chart.render(**OPTIONS["no_budget"]).all("PodDisruptionBudget")


def test_service_monitor_finds_one_service(chart: Chart) -> None:
    rendered = chart.render(**OPTIONS["monitoring"])
    monitor = rendered.get("ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    wanted = monitor["spec"]["selector"]["matchLabels"]
    found = [each for each in rendered.all("Service") if wanted.items() <= each["metadata"]["labels"].items()]
    assert [each["metadata"]["name"] for each in found] == [NAME]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in found[0]["spec"]["ports"]]
    assert endpoint["path"] == "/metrics"
    assert "scheme" not in endpoint
    (job,) = endpoint["relabelings"]
    jobs = re.findall(r'job="([^"]+)"', (OBSERVABILITY / "rules.yml").read_text())
    assert {job["replacement"]} == set(jobs)
    (endpoint,) = chart.render(**OPTIONS["tls"]).get("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"


def test_alert_rules_are_those_of_the_repository(chart: Chart) -> None:
    rule = chart.render(**OPTIONS["monitoring"]).get("PrometheusRule")
    assert rule["spec"] == yaml.safe_load((OBSERVABILITY / "rules.yml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_dashboard_is_that_of_the_repository(chart: Chart) -> None:
    found = chart.render(**OPTIONS["monitoring"]).get("ConfigMap", f"{NAME}-dashboard")
    made = json.loads(found["data"]["disagg-proxy.json"])
    assert made == json.loads((OBSERVABILITY / "dashboard.json").read_text())
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"grafana_folder": "LLM"}


def test_nothing_is_watched_by_default(chart: Chart) -> None:
    kinds = {each["kind"] for each in chart.render().manifests}
    assert kinds == {"PodDisruptionBudget", "ServiceAccount", "ConfigMap", "Service", "StatefulSet"}
