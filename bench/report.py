"""Tables in Markdown: `python -m bench.report latest` writes them again from the stored figures."""

import sys

from bench import plots, store, targets
from bench.cases import CASES, Case
from bench.contestants import ALL
from bench.spread import ratios, significant, spread
from bench.store import CaseResult

_PACED_NOTE = (
    "reads: how often the client's socket had data per stream; 202 events were sent one by one. Where it is lower, the "
    "proxy gathered chunks (by intent, or because its core or the other one was late), which costs less CPU: compare "
    "only rows whose reads are alike."
)


def _reference(name: str) -> str:
    return "ours-array" if name in targets.ARRAYS else "ours"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join([_row(heads), _row(["---", *["---:"] * (len(heads) - 1)]), *map(_row, rows)])


def _median(result: CaseResult, name: str, figure: str, digits: int = 3, scale: float = 1.0) -> str:
    return significant(spread(result.values(name, figure)).median * scale, digits)


def _pair(result: CaseResult, name: str, first: str, second: str) -> str:
    one, two = _median(result, name, first), _median(result, name, second)
    return f"{one} / {two}" if one else ""


def case_table(case: Case, result: CaseResult) -> str:
    """One case with all contestants, cheapest first; who is missing, and why, below."""
    about = result.about
    lines = [f"### {case.name}: {case.title}", ""]
    lines.append(_streams_table(result) if case.streams else _cost_table(case, result))
    if case.paced and not case.streams:
        lines += ["", _PACED_NOTE]
    for name, reason in result.absent.items():
        lines.append(f"\n- {ALL[name].title}: {reason}")
    notes = f"{about['repetitions']} interleaved repetitions of {about['seconds']:g} s, {about['date']}, "
    notes += about["revision"]
    lines += ["", f"<sub>{notes}; load average before: {about['load_average_before']}</sub>", ""]
    return "\n".join(lines)


def _cost_table(case: Case, result: CaseResult) -> str:
    heads = ["proxy", "CPU ms per request", "times ours", "kernel %", "req/s", "core busy %"]
    if case.paced:
        heads += ["CPU us per chunk", "reads", "first token p50 / p99 ms", "peak MiB"]
    else:
        heads += ["added latency p50 / p99 ms", "first token p50 ms", "open loop p50 / p99 ms", "peak MiB"]
    order = sorted(result.figures, key=lambda name: spread(result.values(name, "cpu_ms")).median)
    rows = []
    for name in order:
        cost = spread(result.values(name, "cpu_ms"))
        if not cost.count:
            continue
        times = ratios(result.values(name, "cpu_ms"), result.values(_reference(name), "cpu_ms"))
        cells = [ALL[name].title, cost.text(), times.text()]
        cells += [_median(result, name, "system_share", 2, 100), _median(result, name, "rate", 3)]
        cells.append(_median(result, name, "busy", 2, 100))
        peak = _median(result, name, "peak_kib", 2, 1 / 1024)
        if case.paced:
            per_chunk = significant(cost.median * 1000 / case.chunks, 3)
            cells += [
                per_chunk,
                _median(result, name, "reads"),
                _pair(result, name, "first_p50_ms", "first_p99_ms"),
            ]
        else:
            cells.append(_pair(result, name, "added_p50_ms", "added_p99_ms"))
            cells += [
                _median(result, name, "first_p50_ms"),
                _pair(result, name, "open_p50_ms", "open_p99_ms"),
            ]
        rows.append([*cells, peak])
    return _table(heads, rows)


def _streams_table(result: CaseResult) -> str:
    heads = [
        "proxy",
        "streams",
        "KiB per open stream",
        "first token p50 ms, none open",
        "first token p50 / p99 ms, all open",
        "times",
        "core busy % by the streams",
        "peak MiB",
    ]
    order = sorted(result.figures, key=lambda name: spread(result.values(name, "stream_kib")).median)
    rows = []
    for name in order:
        memory = spread(result.values(name, "stream_kib"))
        if not memory.count:
            continue
        times = ratios(result.values(name, "held_first_p50_ms"), result.values(name, "idle_first_p50_ms"))
        rows.append(
            [
                ALL[name].title,
                _median(result, name, "requests", 4),
                memory.text(),
                _median(result, name, "idle_first_p50_ms"),
                _pair(result, name, "held_first_p50_ms", "held_first_p99_ms"),
                times.text(2),
                _median(result, name, "busy", 2, 100),
                _median(result, name, "peak_kib", 2, 1 / 1024),
            ]
        )
    return _table(heads, rows)


def targets_table(results: dict[str, CaseResult]) -> str:
    """Each target whose figures exist: the bound, what was measured, met or missed by how much."""
    rows = []
    for target in targets.RATIOS:
        outcome = targets.ratio_outcome(target, results)
        if outcome is None:
            continue
        rival, measured = outcome
        what = f"{ALL[target.ours].title} over {ALL[rival].title}"
        if len(target.rivals) > 1:
            what += ", the cheapest gateway"
        bound = f"at most {significant(target.bound, 2)}"
        result = targets.verdict(measured.median, target.bound)
        if target.stretch is not None:
            bound += f", stretch {significant(target.stretch, 2)}"
            result += f"; stretch {targets.verdict(measured.median, target.stretch)}"
        rows.append([f"{target.case}: {what}", bound, measured.text(2), result])
    for limit in targets.LIMITS:
        measured_limit = targets.limit_outcome(limit, results)
        if measured_limit is not None:
            result = targets.verdict(measured_limit.median, limit.bound)
            rows.append(
                [
                    f"{limit.case}: {limit.what}",
                    f"below {significant(limit.bound, 2)}",
                    measured_limit.text(),
                    result,
                ]
            )
    return _table(["target (CPU per request unless said otherwise)", "bound", "measured", "result"], rows)


def chunk_costs(results: dict[str, CaseResult]) -> str:
    """Does a relayed chunk cost the same after a long prompt? Paced stream less the same request unstreamed."""
    lines = []
    for stream, plain, what in (("S3p-32", "S4", "1 KB prompt"), ("S2p-32", "S1", "160 KB prompt")):
        if stream in results and plain in results:
            paced = spread(results[stream].values("ours", "cpu_ms"))
            rest = spread(results[plain].values("ours", "cpu_ms"))
            if paced.count and rest.count:
                cost = (paced.median - rest.median) * 1000 / CASES[stream].chunks
                lines.append(f"- {what}: {significant(cost, 3)} us per paced chunk ({stream} less {plain})")
    return "\n".join(lines)


def document(results: dict[str, CaseResult], pictures: list[str]) -> str:
    """The whole page."""
    about = next(iter(results.values())).about
    parts = [
        "# Results",
        "",
        f"Machine: {about['machine']}. The proxy has one core, everything else the other.",
        "",
    ]
    parts += [f"![{name}]({name})" for name in pictures]
    parts += ["", "## Targets", "", targets_table(results), ""]
    if costs := chunk_costs(results):
        parts += ["Cost of a relayed chunk by length of the prompt:", "", costs, ""]
    parts += ["## Cases", ""]
    parts += [case_table(CASES[name], results[name]) for name in CASES if name in results]
    parts += [
        "Medians over repetitions, in parentheses the smallest and the largest. *times ours* compares repetition by "
        "repetition; contestants that carry ids as arrays are compared with this proxy doing the same.",
    ]
    return "\n".join(parts) + "\n"


def summary(results: dict[str, CaseResult]) -> str:
    """For README: CPU per request of every contestant in every case, and the targets."""
    names = [name for name in ALL if any(result.figures.get(name) for result in results.values())]
    shown = [case for case in CASES if case in results and not CASES[case].streams]
    rows = [
        [ALL[name].title, *(_median(results[case], name, "cpu_ms") for case in shown)]
        for name in names
        if any(results[case].figures.get(name) for case in shown)
    ]
    return "\n\n".join(
        (
            _conditions(results),
            _table(["CPU ms per request", *shown], rows) if rows else "",
            targets_table(results),
        )
    )


def _conditions(results: dict[str, CaseResult]) -> str:
    """How each case was measured: they need not be of one run."""
    groups: dict[str, list[str]] = {}
    for case, result in results.items():
        about = result.about
        how = f"{about['date']}, repetitions of {about['seconds']:g} s: {about['repetitions']}"
        groups.setdefault(how, []).append(case)
    machines = sorted({result.about["machine"] for result in results.values()})
    load = max(result.about["load_average_before"] for result in results.values())
    told = "; ".join(f"{', '.join(sorted(cases))} ({how})" for how, cases in groups.items())
    return f"{'; '.join(machines)}. Medians of {told}. Load average before the cases at most {load:g}."


def put_into_readme(text: str) -> None:
    """Replaces what stands between README's two result marks."""
    path = store.RESULTS.parent / "README.md"
    before, start, rest = path.read_text().partition("<!-- results -->")
    _, end, after = rest.partition("<!-- /results -->")
    if start and end:
        path.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}")


def write(name: str) -> None:
    """bench/results/<name>.md and its plots from <name>.json; `latest` goes into README too."""
    results = store.load(name)
    if not results:
        raise SystemExit(f"no results named {name}")
    pictures = plots.draw(name, results)
    (store.RESULTS / f"{name}.md").write_text(document(results, pictures))
    if name == "latest":
        put_into_readme(summary(results))


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else "latest")
