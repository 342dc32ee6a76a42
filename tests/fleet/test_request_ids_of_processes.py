"""`disagg_request_id`s: unique over processes and over fleets with different node ids."""

import array
import asyncio
import re
import subprocess
import sys
from collections.abc import Callable

from fleet_load import Load
from fleet_stack import FleetStack
from program import eventually

from proxy.wire.ids import MINIMUM_ID

PROCESSES = 8
IDS = 1_000_000
MINT = """
import array, sys
from proxy.wire.ids import RequestIds

index, count = map(int, sys.argv[1:])
mint = RequestIds(3, index).mint
sys.stdout.buffer.write(array.array("q", [mint() for _ in range(count)]).tobytes())
"""


def test_a_million_ids_of_eight_processes_are_unique() -> None:
    minters = [
        subprocess.Popen(
            [sys.executable, "-c", MINT, str(index), str(IDS // PROCESSES)], stdout=subprocess.PIPE
        )
        for index in range(PROCESSES)
    ]
    ids: set[int] = set()
    for minter in minters:
        output, _ = minter.communicate(timeout=60)
        assert minter.returncode == 0
        ids.update(array.array("q", output))
    assert len(ids) == IDS


async def test_ids_tell_node_and_process(start_fleet: Callable[..., FleetStack]) -> None:
    """Of two fleets with eight processes together, under load at the same time."""
    one = start_fleet(5, top={"node_id": 7})
    two = start_fleet(3, top={"node_id": 200}, cluster=one.cluster)
    for fleet in (one, two):
        await asyncio.to_thread(fleet.wait_ready)
    loads = [Load(fleet.port) for fleet in (one, two)]
    await asyncio.gather(*(load.run(128, 4) for load in loads))
    seen: list[int] = []
    for fleet, node in ((one, 7), (two, 200)):
        await asyncio.to_thread(eventually, lambda: fleet.requests_by_process().total() == 512)  # noqa: B023
        lines = re.findall(r"\[(\d+)\] INFO proxy\.access: .* disagg_request_id=(\d+)", fleet.program.err)
        assert len(lines) == 512
        assert {int(process) for process, _ in lines} == set(range(fleet.processes))
        for process, text in lines:
            # The layout is in proxy/wire/ids.py.
            raw = int(text) - MINIMUM_ID
            assert (raw >> 16 & 255, raw >> 10 & 63) == (node, int(process))
            seen.append(int(text))
    assert len(set(seen)) == 1024
