"""`python -m bench.baseline`: CPU of this proxy alone, {1 KB, 160 KB} x {one JSON answer, 200 chunks}, one core."""

import argparse
import json

from bench.cases import CASES
from bench.contestants import ALL
from bench.measure import Plan, Repetition
from bench.spread import spread

FOUR = ("S4", "S3", "S1", "S2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each repetition")
    parser.add_argument("--rival", default="ours", choices=ALL)
    parser.add_argument("--cases", default=",".join(FOUR))
    parser.add_argument("--json", action="store_true", help="one JSON line instead of the table")
    arguments = parser.parse_args()
    plan = Plan(warm_up=0.5, measured=arguments.seconds, extra_phases=False)
    names = arguments.cases.split(",")
    costs: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(arguments.repetitions):
        for name in names:
            costs[name].append(Repetition(CASES[name], ALL[arguments.rival], plan).run().cpu_ms)
    if arguments.json:
        print(json.dumps({name: spread(values).median for name, values in costs.items()}))
        return
    print(f"CPU ms per request of {ALL[arguments.rival].title}, median (smallest to largest)")
    for name, values in costs.items():
        print(f"{name:8} {spread(values).text():32} {CASES[name].title}")


if __name__ == "__main__":
    main()
