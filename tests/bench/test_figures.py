"""Statistics, stored results, targets and tables."""

import math

import pytest

from bench import cases, contestants, plots, report, store, targets
from bench.load.tally import Tally, quantile
from bench.spread import ratios, significant, spread

NAN = math.nan


def test_quantile():
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(list(range(1, 101)), 0.99) == 99
    assert math.isnan(quantile([], 0.5))


def test_spread_ignores_what_was_not_measured():
    found = spread([3.0, NAN, 1.0, 2.0])
    assert (found.median, found.low, found.high, found.count) == (2.0, 1.0, 3.0, 3)
    assert found.text() == "2 (1 to 3)"
    assert spread([]).text() == ""


def test_ratios_compare_the_same_round():
    found = ratios([2.0, 40.0, NAN], [1.0, 10.0, 1.0])
    assert (found.median, found.low, found.high) == (3.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("value", "text"), [(0.01234, "0.0123"), (1.5, "1.50"), (12345.6, "12,346"), (0, "0"), (NAN, "")]
)
def test_significant(value, text):
    assert significant(value, 3) == text


def test_tally_reports_milliseconds():
    tally = Tally()
    tally.note(0.002, 0.001, 3)
    tally.note_error("bad")
    figures = tally.report(2.0)
    assert figures["requests"] == 1
    assert figures["errors"] == 1
    assert figures["latency_p50_ms"] == 2.0
    assert figures["rate"] == 0.5
    assert figures["reads_per_request"] == 3


def test_names():
    assert [case.name for case in cases.chosen("S3p,S1")] == ["S3p-32", "S3p-256", "S1"]
    assert [entry.name for entry in contestants.chosen("ours,nginx")] == ["ours", "nginx"]
    for choose in (cases.chosen, contestants.chosen):
        with pytest.raises(SystemExit):
            choose("nobody")


def result(**cpu):
    about = {
        "date": "2026-01-01",
        "machine": "2 cores",
        "revision": "abc",
        "repetitions": 2,
        "seconds": 1.0,
        "streams": 0,
        "load_average_before": 0.1,
    }
    figures = {
        name.replace("_", "-"): [{"cpu_ms": value} for value in values] for name, values in cpu.items()
    }
    return store.CaseResult(about, figures, {"smg": "missing: not installed"})


def test_targets_take_the_cheapest_gateway():
    results = {"S4": result(ours=[1.0, 1.0], sglang_router=[2.0, 2.0], vllm_router=[1.0, 1.25])}
    target = next(t for t in targets.RATIOS if t.case == "S4" and t.rivals == targets.GATEWAYS)
    outcome = targets.ratio_outcome(target, results)
    assert outcome is not None
    assert outcome[0] == "vllm-router"
    assert outcome[1].median == 0.9
    assert targets.ratio_outcome(target, {}) is None
    assert targets.verdict(0.9, 0.95) == "met"
    assert targets.verdict(1.2, 1.0) == "missed by 20 %"


def test_stored_results_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    entry = result(ours=[1.23456, NAN])
    store.save("x", {"S4": entry})
    back = store.load("x")["S4"]
    assert back.values("ours", "cpu_ms")[0] == 1.235
    assert math.isnan(back.values("ours", "cpu_ms")[1])
    assert back.absent == entry.absent
    assert store.load("other") == {}


def test_page_names_the_missing_and_never_shows_them_as_zero(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    monkeypatch.setattr(plots, "draw", lambda name, results: [])
    store.save("x", {"S4": result(ours=[1.0, 1.1], model=[5.0, 5.5])})
    report.write("x")
    page = (tmp_path / "x.md").read_text()
    assert "- smg (Rust): missing: not installed" in page
    assert "| smg (Rust) |" not in page
    assert "this proxy, ids as base64" in page


def test_every_target_names_a_case_and_contestants():
    for target in targets.RATIOS:
        assert target.case in cases.CASES
        assert {target.ours, *target.rivals} <= set(contestants.ALL)
