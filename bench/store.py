"""Results on disk: one JSON file, one entry per case with all contestants of one interleaved run."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(slots=True)
class CaseResult:
    """Repetitions by contestant; `absent` says why one has none. `about`: date, machine, plan, revision."""

    about: dict[str, Any]
    figures: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def values(self, contestant: str, figure: str) -> list[float]:
        """One figure of each repetition, NaN where it was not measured."""
        found = (repetition.get(figure) for repetition in self.figures.get(contestant, []))
        return [math.nan if value is None else float(value) for value in found]


def load(name: str) -> dict[str, CaseResult]:
    """Results by case; empty when there is no such file."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return {}
    return {case: CaseResult(**entry) for case, entry in json.loads(path.read_text()).items()}


def save(name: str, results: dict[str, CaseResult]) -> None:
    """NaN is left out, numbers keep four significant digits, one line per case."""
    RESULTS.mkdir(exist_ok=True)
    text = {
        case: {
            "about": result.about,
            "absent": result.absent,
            "figures": {
                name: [_short(figures) for figures in repetitions]
                for name, repetitions in result.figures.items()
            },
        }
        for case, result in results.items()
    }
    lines = [f"{json.dumps(case)}: {json.dumps(entry)}" for case, entry in text.items()]
    (RESULTS / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _short(figures: dict[str, float]) -> dict[str, float]:
    return {
        key: float(f"{value:.4g}")
        for key, value in figures.items()
        if value is not None and not math.isnan(value)
    }
