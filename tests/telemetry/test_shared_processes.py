"""Writers in processes of their own, readers in another."""

import os
import subprocess
import sys

from proxy.fleet.memory import create_memory, map_memory
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.names import Metric
from proxy.telemetry.shared import SharedMetrics

WRITERS = 3
ROUNDS = 20_000
FIELDS = Metric("fields", "", ("field",))
WRITER = f"""
import sys
from proxy.fleet.memory import map_memory
from proxy.telemetry.names import Metric
from proxy.telemetry.series import Counter
from proxy.telemetry.shared import SharedMetrics

descriptor, index = map(int, sys.argv[1:])
row = SharedMetrics(map_memory(descriptor), {WRITERS}).rows[index]
row.open()
counter = Counter(row, Metric("fields", "", ("field",)))
for number in range({ROUNDS}):
    counter.add(1, (str(number % 1000),))
"""


def test_sums_rise_while_processes_write() -> None:
    descriptor = create_memory("metrics-test", SharedMetrics.size(WRITERS))
    view = FleetView(SharedMetrics(map_memory(descriptor), WRITERS))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(descriptor), str(index)],
            pass_fds=(descriptor,),
        )
        for index in range(WRITERS)
    ]
    os.close(descriptor)
    seen = 0
    before: dict[tuple[str, ...], int] = {}
    while any(writer.poll() is None for writer in writers):
        now = view.counters(FIELDS)
        assert all(now[labels] >= count for labels, count in before.items())
        before = now
        seen += 1
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    assert seen > 3
    totals = view.counters(FIELDS)
    assert totals == {(str(number),): WRITERS * ROUNDS // 1000 for number in range(1000)}
