"""What admission costs a request, nanoseconds: `python tests/admission/measure_cost.py`."""

import asyncio
import mmap
import sys
from timeit import repeat

from proxy.admission.admission import Admission
from proxy.admission.board import AdmissionBoard
from proxy.admission.capacity import Capacity
from proxy.admission.limits import Limits
from proxy.telemetry.shared import SharedMetrics

_ROUNDS = 100_000


def nanoseconds(admission: Admission, key: str = "") -> float:
    """The least of several runs, per request: enter, context leg answered, leave."""

    def request() -> None:
        permit = admission.enter(key)
        assert permit is not None
        with permit:
            permit.context_done()

    return min(repeat(request, number=_ROUNDS, repeat=7)) / _ROUNDS * 1e9


def board(processes: int) -> AdmissionBoard:
    memory = SharedMetrics(mmap.mmap(-1, SharedMetrics.size(processes)), processes)
    for row in memory.rows:
        row.open()
    boards = [AdmissionBoard(row, [each for each in memory.rows if each is not row]) for row in memory.rows]
    return boards[0]


async def main() -> dict[str, float]:
    call_later = asyncio.get_running_loop().call_later

    def admission(limits: Limits, **others: object) -> Admission:
        return Admission(limits, call_later=call_later, **others)  # type: ignore[arg-type]

    capacity = Capacity(100, 100)
    return {
        "unlimited": nanoseconds(admission(Limits())),
        "max_inflight": nanoseconds(admission(Limits(max_inflight=100))),
        "max_inflight, key, workers": nanoseconds(
            admission(Limits(max_inflight=100, max_inflight_per_key=10), capacity=lambda: capacity), "a"
        ),
        "max_inflight, 8 processes": nanoseconds(admission(Limits(max_inflight=100), board=board(8))),
    }


if __name__ == "__main__":
    for name, cost in asyncio.run(main()).items():
        sys.stdout.write(f"{name:30} {cost:8.0f} ns\n")
