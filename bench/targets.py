"""What this proxy is meant to reach, as a table; and how a result compares."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.spread import Spread, ratios, spread
from bench.store import CaseResult

GATEWAYS = ("sglang-router", "vllm-router", "smg")
# Contestants whose ids travel as arrays are compared with this proxy in the same form.
ARRAYS = ("model",)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Our CPU per request over a rival's, at most `bound`; several rivals: over the cheapest one's."""

    case: str
    rivals: tuple[str, ...]
    bound: float
    stretch: float | None = None
    contestant: str = ""

    @property
    def ours(self) -> str:
        return self.contestant or ("ours-array" if self.rivals[0] in ARRAYS else "ours")


@dataclass(frozen=True, slots=True)
class Limit:
    """One of our own figures, below `bound`."""

    case: str
    figure: str
    bound: float
    what: str


RATIOS: tuple[Ratio, ...] = (
    Ratio("S1", ("model",), 1 / 18),
    Ratio("S1", ("model-b64",), 1 / 6),
    Ratio("S4", ("model",), 1 / 5),
    Ratio("S3p-32", ("model",), 1 / 2.5),
    Ratio("S1", ("over-aiohttp",), 1 / 1.5),
    Ratio("S3", ("over-aiohttp",), 1 / 4),
    Ratio("S4", ("over-aiohttp",), 1 / 2),
    Ratio("S3p-32", ("over-aiohttp",), 1 / 2),
    Ratio("S1", ("over-httpx",), 1 / 7),
    Ratio("S4", ("over-httpx",), 1 / 12),
    Ratio("S1", GATEWAYS, 0.75),
    Ratio("S2", GATEWAYS, 0.4),
    Ratio("S3", GATEWAYS, 0.4),
    Ratio("S4", GATEWAYS, 0.95, 0.7),
    Ratio("S3p-32", GATEWAYS, 0.85, 0.7),
    Ratio("S3p-256", GATEWAYS, 0.85, 0.7),
    Ratio("S5", GATEWAYS, 0.7),
    Ratio("S3p-32", ("nginx",), 1.4, 1.15),
    Ratio("S3p-256", ("nginx",), 1.4, 1.15),
    Ratio("S3p-32", ("nginx",), 0.6, contestant="ours-coalesce"),
    Ratio("S1", ("haproxy",), 4),
)
LIMITS: tuple[Limit, ...] = (
    Limit("S4", "added_p50_ms", 0.35, "added latency, one client, ms"),
    Limit("S1", "added_p50_ms", 1.2, "added latency, one client, ms"),
    Limit("S6", "stream_kib", 40 * 1000 / 1024, "memory per open stream, KiB"),
    Limit("S6", "held_over_idle", 2.0, "time to first token beside held streams over without"),
)


def cheapest(result: CaseResult, names: tuple[str, ...]) -> str | None:
    """Of several contestants the one with the lowest median CPU per request; None when none has a result."""
    costs = {name: spread(result.values(name, "cpu_ms")) for name in names}
    present = {name: cost.median for name, cost in costs.items() if cost.count}
    return min(present, key=present.__getitem__, default=None)


def ratio_outcome(target: Ratio, results: Mapping[str, CaseResult]) -> tuple[str, Spread] | None:
    """(rival that counts, our CPU over its) or None when one of the two was not measured."""
    result = results.get(target.case)
    if result is None:
        return None
    rival = cheapest(result, target.rivals)
    if rival is None:
        return None
    outcome = ratios(result.values(target.ours, "cpu_ms"), result.values(rival, "cpu_ms"))
    return (rival, outcome) if outcome.count else None


def limit_outcome(target: Limit, results: Mapping[str, CaseResult]) -> Spread | None:
    """Our figure, or None when it was not measured."""
    result = results.get(target.case)
    if result is None:
        return None
    if target.figure == "held_over_idle":
        found = ratios(result.values("ours", "held_first_p50_ms"), result.values("ours", "idle_first_p50_ms"))
    else:
        found = spread(result.values("ours", target.figure))
    return found if found.count else None


def verdict(value: float, bound: float) -> str:
    """`met`, or by how much it was missed."""
    if value <= bound:
        return "met"
    excess = (value / bound - 1) * 100
    return f"missed by {excess:.0f} %" if excess >= 1 else "missed by less than 1 %"
