"""Small pictures of the results; none without matplotlib."""

from typing import Any

from bench.cases import CASES
from bench.spread import significant, spread
from bench.store import RESULTS, CaseResult

_OURS, _LIBRARY, _RUST, _SINGLE, _TODAY = "#1b7837", "#92c5de", "#d6604d", "#bbbbbb", "#6a51a3"


def _colour(name: str) -> str:
    if name.startswith("ours"):
        return _OURS
    if name.startswith("model"):
        return _TODAY
    if name.startswith(("nginx", "haproxy")):
        return _SINGLE
    return _LIBRARY if name.endswith(("aiohttp", "httpx")) else _RUST


def _bars(axes: Any, result: CaseResult, figure: str, title: str, logarithmic: bool) -> None:
    found = [(name, spread(result.values(name, figure))) for name in result.figures]
    bars = sorted(((name, value) for name, value in found if value.count), key=lambda bar: -bar[1].median)
    names = [name for name, _ in bars]
    values = [value.median for _, value in bars]
    errors = [[v.median - v.low for _, v in bars], [v.high - v.median for _, v in bars]]
    axes.barh(names, values, xerr=errors, color=[_colour(name) for name in names], error_kw={"lw": 0.8})
    for row, value in enumerate(values):
        axes.annotate(f" {significant(value, 2)}", (max(value, 0), row), va="center", fontsize=7)
    axes.set_title(title, fontsize=8, loc="left")
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    if logarithmic and values and min(values) > 0:
        axes.set_xscale("log")
    axes.margins(x=0.18)


def draw(name: str, results: dict[str, CaseResult]) -> list[str]:
    """Writes <name>-cpu.png, -paced.png, -latency.png and -streams.png where there are figures; their file names."""
    try:
        import matplotlib as mpl
    except ImportError:
        return []
    mpl.use("Agg")
    from matplotlib import pyplot

    loops = [case for case in CASES if case in results and not CASES[case].streams]
    sheets = {
        "cpu": [(case, "cpu_ms", f"{case}: CPU ms per request") for case in loops if not CASES[case].paced],
        "paced": [(case, "cpu_ms", f"{case}: CPU ms per request") for case in loops if CASES[case].paced],
        "latency": [
            (case, "added_p50_ms", f"{case}: added latency, one client, p50 ms")
            for case in loops
            if not CASES[case].paced
        ],
        "streams": [
            ("S6", "stream_kib", "S6: KiB per open stream"),
            ("S6", "held_first_p50_ms", "S6: first token beside open streams, p50 ms"),
        ]
        if "S6" in results
        else [],
    }
    pictures = []
    for sheet, panels in sheets.items():
        if not panels:
            continue
        columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
        rows = -(-len(panels) // columns)
        figure, grid = pyplot.subplots(rows, columns, figsize=(4.0 * columns, 2.5 * rows), squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (case, value, title) in zip(grid.flat, panels, strict=False):
            _bars(axes, results[case], value, title, logarithmic=sheet != "streams")
        figure.tight_layout()
        path = RESULTS / f"{name}-{sheet}.png"
        figure.savefig(path, dpi=80)
        pyplot.close(figure)
        pictures.append(path.name)
    return pictures
