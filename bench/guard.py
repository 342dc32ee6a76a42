"""`python -m bench.guard [REVISION]`: did a change of the hot path cost anything? Run it before the change lands.

Compares the working tree with a revision (default HEAD~) on S1, S3 and S4: CPU per request in interleaved
repetitions (tree, base, base, tree, ...), or instructions where the machine counts them. The revision is checked
out into a temporary git worktree and runs with the same interpreter and libraries.
"""

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.cases import CASES
from bench.child import ROOT, ChildError
from bench.contestants import Contestant, MissingError, ours
from bench.instructions import supported
from bench.measure import Plan, Repetition
from bench.spread import Spread, ratios, spread

GUARDED = ("S1", "S3", "S4")


class Checkout:
    """A revision in a temporary worktree, removed at the end."""

    def __init__(self, revision: str) -> None:
        self._revision = revision
        self._folder = Path(tempfile.mkdtemp(prefix="bench-guard-"))
        self.path = self._folder / "tree"

    def __enter__(self) -> Path:
        command = ["git", "worktree", "add", "--detach", "--quiet", str(self.path), self._revision]
        subprocess.run(command, cwd=ROOT, check=True)
        return self.path

    def __exit__(self, *_: object) -> None:
        subprocess.run(["git", "worktree", "remove", "--force", str(self.path)], cwd=ROOT, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)


def compare(
    case_name: str, tree: Contestant, base: Contestant, plan: Plan, repetitions: int
) -> tuple[list[float], list[float]]:
    """Cost per request of both, one number for each repetition."""
    costs: dict[str, list[float]] = {tree.name: [], base.name: []}
    for number in range(repetitions):
        # The second of a pair is not always the same one: what warms or throttles the machine meets both.
        for entry in (tree, base) if number % 2 == 0 else (base, tree):
            figures = Repetition(CASES[case_name], entry, plan).run()
            counted = not math.isnan(figures.instructions)
            costs[entry.name].append(figures.instructions / 1e3 if counted else figures.cpu_ms)
    return costs[tree.name], costs[base.name]


def verdict(ratio: Spread, tolerance: float) -> str:
    """A change counts only when most pairs agree: the median is beyond the tolerance."""
    if ratio.median > 1 + tolerance:
        return "SLOWER"
    return "faster" if ratio.median < 1 - tolerance else "same"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", nargs="?", default="HEAD~")
    parser.add_argument("--cases", default=",".join(GUARDED))
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.5, help="of each repetition")
    parser.add_argument("--tolerance", type=float, default=0.03, help="share that counts as no change")
    arguments = parser.parse_args()
    plan = Plan(warm_up=0.5, measured=arguments.seconds, extra_phases=False)
    unit = "1,000 instructions" if supported() else "CPU ms"
    slower = False
    with Checkout(arguments.revision) as path:
        tree = Contestant("tree", "working tree", ours(True))
        base = Contestant("base", arguments.revision, ours(True, path))
        print(
            f"{unit} per request; ratio = working tree / {arguments.revision}, median (smallest to largest)"
        )
        for name in arguments.cases.split(","):
            try:
                ours_now, before = compare(name, tree, base, plan, arguments.repetitions)
            except (MissingError, ChildError) as error:
                sys.exit(f"{name}: {error}")
            ratio = ratios(ours_now, before)
            result = verdict(ratio, arguments.tolerance)
            slower |= result == "SLOWER"
            print(
                f"{name:8} {spread(before).median:8.4f} -> {spread(ours_now).median:8.4f}  {ratio.text(4)}  {result}",
                flush=True,
            )
    sys.exit(slower)


if __name__ == "__main__":
    main()
