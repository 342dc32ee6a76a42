"""SIGHUP under load, with and without a supervisor."""

import asyncio
import signal
from collections.abc import Callable

import pytest
from fleet_load import Load
from fleet_stack import FleetStack
from program import eventually

StartFleet = Callable[..., FleetStack]


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_reload_changes_the_workers_and_loses_nothing(
    start_fleet: StartFleet, processes: int
) -> None:
    fleet = start_fleet(processes, decode_ms=2.0)
    await asyncio.to_thread(fleet.wait_ready)
    first, second, spare = fleet.cluster.context_workers
    load = Load(fleet.port)
    running = asyncio.ensure_future(load.run(128))
    await asyncio.sleep(0.3)
    assert first.legs["context"] > 0
    assert spare.legs["context"] == 0

    fleet.write_config([second.address, spare.address])
    fleet.program.process.send_signal(signal.SIGHUP)
    await asyncio.to_thread(eventually, lambda: spare.legs["context"] > 20, what="work for the new one")
    await asyncio.sleep(0.3)
    left = first.legs["context"]
    await asyncio.sleep(0.3)
    assert first.legs["context"] == left

    # A broken file is told and not used; other keys wait for the next start.
    fleet.path.write_text("context_servers: [")
    fleet.program.process.send_signal(signal.SIGHUP)
    await asyncio.to_thread(fleet.program.wait_for, "was read again and is not used")
    fleet.write_config([first.address, second.address], max_retries=7)
    fleet.program.process.send_signal(signal.SIGHUP)
    await asyncio.to_thread(fleet.program.wait_for, r"take effect at the next start: max_retries\n")
    await asyncio.to_thread(eventually, lambda: first.legs["context"] > left, what="work after the return")

    load.stopping = True
    await running
    assert set(load.statuses) == {200}
    assert load.lost == []
    assert await asyncio.to_thread(fleet.served) == load.answers
    # The other process tells its gauges once a second.
    names = [spare.address, "worker_ready"]
    await asyncio.to_thread(
        eventually,
        lambda: not any(all(part in name for part in names) for name in fleet.metrics()),
        what="the removed worker's leave",
    )
    assert sum("worker_ready" in name for name in await asyncio.to_thread(fleet.metrics)) == 4
