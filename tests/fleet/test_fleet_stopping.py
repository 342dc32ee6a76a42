"""How fleets end: drained, in a hurry, orphaned, or because nothing works."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from http.client import HTTPException

from fleet_load import BODY, Load
from fleet_stack import FleetStack, alive
from program import eventually

StartFleet = Callable[..., FleetStack]
# Both processes have said so.
DRAINING = r"(?s)(draining: .*){2}"
LONG = {**BODY, "max_tokens": 40}
ENDLESS = {**BODY, "max_tokens": 10_000}


async def in_flight(fleet: FleetStack, count: int) -> None:
    """Wait until all processes together run that many requests of the load."""
    await asyncio.to_thread(
        eventually,
        lambda: sum(worker.engine.running for worker in fleet.cluster.workers) >= count,
        what="requests in flight",
    )


async def test_drain_finishes_what_runs(start_fleet: StartFleet) -> None:
    fleet = start_fleet(2, decode_ms=80.0, drain_grace=1.0)
    await asyncio.to_thread(fleet.wait_ready)
    load = Load(fleet.port, LONG)
    running = asyncio.ensure_future(load.run(60, 1))
    await in_flight(fleet, 60)
    started = time.monotonic()
    fleet.program.terminate()
    await asyncio.to_thread(fleet.program.wait_for, DRAINING)
    # During the grace new requests are served, on connections that close after the answer.
    assert (await asyncio.to_thread(fleet.get, "/health/live"))[0] == 200
    assert (await asyncio.to_thread(fleet.get, "/health/ready"))[0] == 503

    def refused() -> bool:
        try:
            fleet.get("/health/live")
        except ConnectionRefusedError:
            return True
        except (OSError, HTTPException):  # it waited in the queue of a socket that was just being closed
            return False
        return False

    # Afterwards nobody waits for an answer that never comes: the supervisor's copies of the sockets are closed too.
    await asyncio.to_thread(eventually, refused, what="a refusal")
    assert not running.done()
    await running
    assert load.statuses == {200: 60}
    assert load.lost == []
    assert await asyncio.to_thread(fleet.program.wait, 10) == 0
    assert time.monotonic() - started < 12
    assert not any(map(alive, fleet.pids()))


async def test_a_second_signal_hurries(start_fleet: StartFleet) -> None:
    fleet = start_fleet(2, decode_ms=100.0, drain_grace=30)
    await asyncio.to_thread(fleet.wait_ready)
    load = Load(fleet.port, ENDLESS)
    running = asyncio.ensure_future(load.run(8, 1))
    await in_flight(fleet, 8)
    started = time.monotonic()
    fleet.program.terminate()
    await asyncio.to_thread(fleet.program.wait_for, DRAINING)
    assert fleet.program.process.poll() is None
    fleet.program.process.send_signal(signal.SIGINT)
    load.stopping = True
    assert await asyncio.to_thread(fleet.program.wait, 10) == 0
    assert time.monotonic() - started < 8
    await asyncio.wait_for(running, 10)
    assert not any(map(alive, fleet.pids()))


def test_a_signal_while_the_processes_start(start_fleet: StartFleet) -> None:
    fleet = start_fleet(2)
    fleet.program.wait_for("process 1 has started")
    fleet.program.terminate()
    assert fleet.program.wait(10) == 0
    assert not any(map(alive, fleet.pids()))


async def test_a_process_that_is_told_to_end_is_replaced(start_fleet: StartFleet) -> None:
    fleet = start_fleet(2, decode_ms=20.0, drain_grace=0.1)
    await asyncio.to_thread(fleet.wait_ready)
    load = Load(fleet.port, {**BODY, "max_tokens": 200})
    running = asyncio.ensure_future(load.run(32, 1))
    await in_flight(fleet, 32)
    first = fleet.pids()[1]
    os.kill(first, signal.SIGTERM)
    await asyncio.sleep(0.3)
    # It still works on its requests; new ones do not wait for it.
    started = time.monotonic()
    for _ in range(30):
        assert (await asyncio.to_thread(fleet.get, "/health/live"))[0] == 200
    assert alive(first)
    assert time.monotonic() - started < 3.0
    await running
    assert load.statuses == {200: 32}
    assert load.lost == []
    await asyncio.to_thread(eventually, lambda: fleet.pids()[1] != first, what="a new process")
    await asyncio.to_thread(fleet.wait_ready)
    assert "process 1 ended unasked" in fleet.program.err
    assert "(exit code 0)" in fleet.program.err


async def test_processes_end_when_the_supervisor_is_killed(start_fleet: StartFleet) -> None:
    fleet = start_fleet(2, decode_ms=20.0, drain_grace=0.2)
    await asyncio.to_thread(fleet.wait_ready)
    load = Load(fleet.port, LONG)
    running = asyncio.ensure_future(load.run(20, 1))
    await in_flight(fleet, 20)
    pids = fleet.pids()
    fleet.program.process.kill()
    await running
    assert load.statuses == {200: 20}
    assert load.lost == []
    await asyncio.to_thread(eventually, lambda: not any(map(alive, pids)), 5, "the end of all processes")
