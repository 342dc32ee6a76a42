"""SIGHUP under load, with and without a supervisor."""

import asyncio
import signal
from collections.abc import Callable

import pytest
from fleet_load import BODY, Load
from fleet_rest import rests
from fleet_rows import leftovers
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
    await rests(first)
    left = first.legs["context"]

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
    # A request is settled just after its answer.
    await asyncio.to_thread(eventually, lambda: fleet.served() == load.answers, what="all of them counted")
    # The other process tells its gauges once a second.
    names = [spare.address, "worker_ready"]
    await asyncio.to_thread(
        eventually,
        lambda: not any(all(part in name for part in names) for name in fleet.metrics()),
        what="the removed worker's leave",
    )
    assert sum("worker_ready" in name for name in await asyncio.to_thread(fleet.metrics)) == 4


@pytest.mark.parametrize("processes", [1, 3])
async def test_a_removed_worker_finishes_its_legs(start_fleet: StartFleet, processes: int) -> None:
    """Legs of both roles run on while their workers are not listed any more; then the workers are forgotten."""
    fleet = start_fleet(processes, decode_ms=30.0, router="load_balancing")
    await asyncio.to_thread(fleet.wait_ready)
    leaving_context, leaving = fleet.cluster.context_workers[0], fleet.cluster.generation_workers[0]
    leaving_context.add_fault(kind="slow_first_byte", seconds=1.0, leg="context", count=6)
    load = Load(fleet.port, {**BODY, "max_tokens": 100})
    running = asyncio.ensure_future(load.run(40, 1))

    def in_flight() -> bool:
        return leaving_context.legs["context"] >= 6 and leaving.engine.running >= 8

    await asyncio.to_thread(eventually, in_flight, what="legs on both")
    fleet.write_config(
        [worker.address for worker in fleet.cluster.context_workers[1:]],
        generation_servers={"urls": [fleet.cluster.generation_workers[1].address]},
    )
    fleet.program.process.send_signal(signal.SIGHUP)
    state = f'disagg_proxy_worker_state{{role="generation",state="draining",worker="{leaving.address}"}}'
    await asyncio.to_thread(
        eventually, lambda: fleet.metrics().get(state) == processes, what="the word in all processes"
    )
    await asyncio.sleep(0.5)  # legs that had been placed before are still on their way
    legs = leaving.legs["generation"]
    assert leaving.engine.running > 0
    assert not running.done()
    await running
    assert load.statuses == {200: 40}
    assert load.lost == []
    assert leaving.engine.aborts == leaving_context.engine.aborts == 0
    assert leaving.legs["generation"] == legs
    await asyncio.to_thread(
        eventually,
        lambda: (
            not any(
                worker.address in name and "worker_state" in name
                for name in fleet.metrics()
                for worker in (leaving, leaving_context)
            )
        ),
        what="their leave",
    )
    if processes > 1:
        await asyncio.to_thread(eventually, lambda: not leftovers(fleet), what="zero everywhere")


async def test_an_address_changes_its_role(start_fleet: StartFleet) -> None:
    """It keeps its column of the load table in every process, so none ignores it."""
    fleet = start_fleet(2, workers={"context": 2, "generation": 3})
    await asyncio.to_thread(fleet.wait_ready)
    moving = fleet.cluster.generation_workers[2]
    load = Load(fleet.port)
    running = asyncio.ensure_future(load.run(16))
    await asyncio.to_thread(eventually, lambda: moving.legs["generation"] > 5, what="work for it")
    urls = fleet.cluster.generation_urls[:2]
    fleet.write_config([*fleet.cluster.context_urls, moving.address], generation_servers={"urls": urls})
    fleet.program.process.send_signal(signal.SIGHUP)
    await asyncio.to_thread(eventually, lambda: moving.legs["context"] > 20, what="the other work for it")
    load.stopping = True
    await running
    assert set(load.statuses) == {200}
    assert load.lost == []
    assert "is ignored" not in fleet.program.err
    await asyncio.to_thread(eventually, lambda: not leftovers(fleet), what="zero everywhere")
