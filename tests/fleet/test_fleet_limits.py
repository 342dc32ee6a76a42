"""Limits are those of the whole fleet, also while one of its processes dies with requests in it."""

import asyncio
import os
import signal
from collections.abc import Callable

from fleet_load import BODY, ask, held_open
from fleet_rows import leftovers, load_tables
from fleet_stack import FleetStack
from program import eventually

LIMIT = 24


async def test_a_killed_process_gives_its_places_back(start_fleet: Callable[..., FleetStack]) -> None:
    fleet = start_fleet(2, max_inflight=LIMIT, max_queued=0)
    await asyncio.to_thread(fleet.wait_ready)
    workers = fleet.cluster.context_workers

    def legs() -> list[int]:
        return [sum(table.own_legs[:16]) for table in load_tables(fleet)]

    async def status() -> int:
        return await ask(fleet.port, "/v1/completions", BODY)

    for worker in workers:
        worker.add_fault(kind="hang", leg="context")
    async with held_open(fleet.port, LIMIT):
        await asyncio.to_thread(eventually, lambda: sum(legs()) == LIMIT, what="all of them")
        lost, kept = legs()
        assert lost
        assert kept
        # Whichever process is asked.
        assert {await status() for _ in range(8)} == {429}
        victim = fleet.pids()[0]
        os.kill(victim, signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: fleet.program.err.count("process 0 serves") == 2)
        assert legs() == [0, kept]
        async with held_open(fleet.port, lost):
            await asyncio.to_thread(eventually, lambda: sum(legs()) == LIMIT, what="as many as before")
            assert {await status() for _ in range(8)} == {429}
        for worker in workers:
            worker.clear_faults()
        await asyncio.to_thread(eventually, lambda: sum(legs()) == kept, what="the places")
        assert {await status() for _ in range(8)} == {200}
    await asyncio.to_thread(eventually, lambda: not leftovers(fleet), what="zero everywhere")
