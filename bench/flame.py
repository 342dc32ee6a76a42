"""A flame graph of the proxy under one case: `python -m bench.flame --case S4 --output bench/results/flame-S4.svg`.

py-spy samples the running proxy; it needs to be root or to have ptrace allowed. `--source` profiles another checkout.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from bench.cases import CASES
from bench.child import ROOT, Child
from bench.contestants import Contestant, ours
from bench.measure import Plan, Repetition

SECONDS = 5


class Profiled(Repetition):
    """A repetition whose closed loop is watched by py-spy."""

    output: Path

    def _closed_loop(self, proxy: Child, load: Child) -> None:
        command = [spy(), "record", "--pid", str(proxy.pid), "--duration", str(SECONDS), "--rate", "250"]
        command += ["--nonblocking", "--format", "flamegraph", "--output", str(self.output)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sampler:
            super()._closed_loop(proxy, load)
            sampler.wait(timeout=60)
        # py-spy writes its command line, with all paths, into the picture.
        picture = self.output.read_text().replace(" ".join(command), f"disagg-proxy, case {self._case.name}")
        self.output.write_text(picture.replace(f"{self.output}", self.output.name))


def spy() -> str:
    found = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{ROOT / '.venv-bench' / 'bin'}")
    if found is None:
        raise SystemExit("py-spy is not installed: pip install '.[bench]'")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--source", type=Path, default=ROOT)
    arguments = parser.parse_args()
    plan = Plan(warm_up=0.5, measured=SECONDS + 2.0, extra_phases=False)
    contestant = Contestant("ours", "this proxy", ours(True, arguments.source.resolve()))
    repetition = Profiled(CASES[arguments.case], contestant, plan)
    repetition.output = arguments.output.resolve()
    figures = repetition.run()
    print(f"{arguments.output}: {figures.requests} requests, {figures.cpu_ms:.3f} ms CPU each while sampled")


if __name__ == "__main__":
    main()
