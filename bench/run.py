"""`python -m bench.run --cases S1,S4 --rivals ours,model --repetitions 5`: measure, interleaved, and report."""

import argparse
import subprocess
import sys
import time
from datetime import UTC, datetime

from bench import cases, contestants, machine, report, store
from bench.cases import Case
from bench.child import ROOT, ChildError
from bench.contestants import Contestant, MissingError
from bench.measure import QUICK, Plan, Repetition


def revision() -> str:
    """Commit of the working tree, with a mark when proxy/ has changes that are not committed."""
    commands = (["git", "rev-parse", "--short", "HEAD"], ["git", "status", "--porcelain", "--", "proxy"])
    commit, changes = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        for command in commands
    )
    return f"{commit or 'unknown'}{' with uncommitted changes' if changes else ''}"


def say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def measure_case(case: Case, entries: list[Contestant], plan: Plan, repetitions: int) -> store.CaseResult:
    """A B C ... A B C ...: each round has every contestant once, so that drift meets all alike."""
    result = store.CaseResult(
        about={
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": machine.description(),
            "revision": revision(),
            "repetitions": repetitions,
            "seconds": plan.measured,
            "streams": plan.streams or case.streams,
            "load_average_before": round(machine.load_average(), 2),
        }
    )
    failures: dict[str, int] = {}
    for round_number in range(repetitions):
        for entry in entries:
            if not entry.suits(case) or entry.name in result.absent:
                continue
            began = time.monotonic()
            try:
                figures = Repetition(case, entry, plan).run()
            except MissingError as error:
                result.absent[entry.name] = f"missing: {error}"
                say(f"{case.name} {entry.name}: missing: {error}")
                continue
            except ChildError as error:
                say(f"{case.name} {entry.name}: {error}")
                failures[entry.name] = failures.get(entry.name, 0) + 1
                if failures[entry.name] == 2:
                    result.absent[entry.name] = f"failed: {str(error).splitlines()[0][:300]}"
                    result.figures.pop(entry.name, None)
                else:
                    # Keeps the rounds of all contestants in step for the ratios.
                    result.figures.setdefault(entry.name, []).append({})
                continue
            result.figures.setdefault(entry.name, []).append(figures.as_dict())
            cost = (
                f"{figures.cpu_ms:.3f} ms" if case.streams == 0 else f"{figures.stream_kib:.1f} KiB a stream"
            )
            say(
                f"{case.name} {round_number + 1}/{repetitions} {entry.name}: {cost} ({time.monotonic() - began:.0f} s)"
            )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cases", default="all", help=f"comma-separated of {', '.join(cases.CASES)}; S3p takes both"
    )
    parser.add_argument("--rivals", default="all", help=f"comma-separated of {', '.join(contestants.ALL)}")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="short phases, for a first look only")
    parser.add_argument("--seconds", type=float, help="length of the measured closed loop")
    parser.add_argument("--streams", type=int, help="how many streams S6 holds open")
    parser.add_argument("--output", help="name of the files in bench/results (default: latest, or quick)")
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else Plan()
    if arguments.seconds:
        plan = plan.changed(measured=arguments.seconds)
    if arguments.streams:
        plan = plan.changed(streams=arguments.streams)
    name = arguments.output or ("quick" if arguments.quick else "latest")
    entries = contestants.chosen(arguments.rivals)
    for case in cases.chosen(arguments.cases):
        result = measure_case(case, entries, plan, arguments.repetitions)
        # Read and written per case: a run that is stopped keeps what it has, and cases can be run one by one.
        results = store.load(name)
        results[case.name] = result
        store.save(name, results)
        print(report.case_table(case, result), flush=True)
    report.write(name)


if __name__ == "__main__":
    main()
