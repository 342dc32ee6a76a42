"""The dashboard, the scrape configuration and the alert rules agree with what the proxy tells."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.telemetry import names

FOLDER = Path(__file__).parents[2] / "deploy" / "observability"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is missing (Debian package prometheus)"
)
KNOWN = {metric.name: metric for metric in (*names.ALL, names.PROCESSES, names.BUILD)}
SUFFIXES = {"counter": {"_total"}, "gauge": {""}, "histogram": {"_bucket", "_sum", "_count"}}
SERIES = {
    names.PREFIX + name + end: metric for name, metric in KNOWN.items() for end in SUFFIXES[metric.kind]
}
EVERYWHERE = {"job", "instance", "le"}


def dashboard() -> dict[str, Any]:
    return json.loads((FOLDER / "dashboard.json").read_text())


def dashboard_expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((FOLDER / "rules.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


EXPRESSIONS = [*dashboard_expressions(), *(rule["expr"] for rule in rules())]


def test_the_dashboard_is_what_its_table_says() -> None:
    program = FOLDER / "dashboard.py"
    made = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=60)
    told = "run: python deploy/observability/dashboard.py > deploy/observability/dashboard.json"
    assert made.stdout == (FOLDER / "dashboard.json").read_text(), told


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_series_exists(expression: str) -> None:
    found = re.findall(rf"({names.PREFIX}\w+)(\{{[^}}]*\}})?", expression)
    if not found:
        assert expression == 'up{job="disagg-proxy"} == 0'
    for series, conditions in found:
        assert series in SERIES, series
        labels = set(re.findall(r"(\w+)\s*=?[=~!]", conditions))
        assert labels - EVERYWHERE <= set(SERIES[series].labels), conditions


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_label_exists(expression: str) -> None:
    known = {
        label for series in re.findall(rf"{names.PREFIX}\w+", expression) for label in SERIES[series].labels
    }
    for labels in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in labels.split(",")} <= known | EVERYWHERE


def test_most_metrics_are_shown() -> None:
    shown = {series for expression in EXPRESSIONS for series in re.findall(rf"{names.PREFIX}\w+", expression)}
    assert {metric.name for metric in KNOWN.values()} == {SERIES[series].name for series in shown}


@needs_promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "rules.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "rules_test.yml"),
    ],
)
def test_promtool(arguments: tuple[str, ...]) -> None:
    result = subprocess.run(
        [str(PROMTOOL), *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_is_tested_both_ways() -> None:
    tests = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    rows = [row for test in tests for row in test["alert_rule_test"]]
    alerts = {rule["alert"] for rule in rules()}
    assert {row["alertname"] for row in rows if "exp_alerts" in row} == alerts
    assert {row["alertname"] for row in rows if "exp_alerts" not in row} == alerts
