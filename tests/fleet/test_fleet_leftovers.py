"""After faults, disconnects and a killed process nothing is counted any more, in any process."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet_chaos import Chaos
from fleet_rows import leftovers
from fleet_stack import FleetStack
from program import eventually

_logger = logging.getLogger(__name__)

StartFleet = Callable[..., FleetStack]


@pytest.mark.parametrize(
    ("processes", "requests"),
    [(3, 2000), *(pytest.param(number, 20_000, marks=pytest.mark.long) for number in (2, 3))],
)
async def test_all_counts_are_back_at_zero(
    start_fleet: StartFleet, tmp_path: Path, processes: int, requests: int
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("zero:key-0\none:key-1\n")
    keys.chmod(0o600)
    fleet = start_fleet(
        processes,
        decode_ms=1.0,
        listed=3,
        workers={"context": 3, "generation": 3, "record": 0},
        router="conversation",
        api_keys_file=str(keys),
        max_inflight=40,
        max_inflight_per_key=30,
        max_inflight_per_context_worker=20,
        timeout_context=0.3,
        timeout_first_byte=0.3,
        timeout_idle=0.3,
        eject_seconds=0.3,
    )
    await asyncio.to_thread(fleet.wait_ready)
    chaos = Chaos(fleet.port, fleet.cluster, seed=processes)
    running = asyncio.ensure_future(chaos.run(requests))
    half = requests // 2
    await asyncio.to_thread(eventually, lambda: chaos.done > half or running.done(), 120, "half of it")
    assert not running.done()
    assert leftovers(fleet)
    os.kill(fleet.pids()[1], signal.SIGKILL)
    await asyncio.wait_for(running, 240)
    assert chaos.done >= requests
    _logger.info("%d processes, %d requests: %s", processes, requests, dict(chaos.outcomes))
    assert chaos.outcomes[200] > requests / 2
    assert chaos.outcomes["left"] > requests / 20
    await asyncio.to_thread(fleet.wait_ready)
    assert fleet.program.err.count("ended unasked") == 1
    assert "Traceback" not in fleet.program.err

    def idle() -> bool:
        return not leftovers(fleet)

    try:
        await asyncio.to_thread(eventually, idle, 15, "zero everywhere")
    except AssertionError:
        pytest.fail("\n".join(leftovers(fleet)))
    # One connection is the scrape's own.
    await asyncio.to_thread(
        eventually, lambda: fleet.metrics()["disagg_proxy_connections"] <= 1, what="no clients"
    )
    # The workers have nothing to do either, and nobody holds more connections than the proxies count.
    await asyncio.to_thread(
        eventually,
        lambda: not any(worker.engine.running or worker.engine.waiting for worker in fleet.cluster.workers),
        what="idle workers",
    )
    fleet.program.terminate()
    assert await asyncio.to_thread(fleet.program.wait) == 0
