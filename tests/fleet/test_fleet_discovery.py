"""Workers of a file, with and without a supervisor."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fleet_load import BODY, Load
from fleet_rest import rests
from fleet_rows import leftovers
from fleet_stack import FleetStack
from program import eventually

from proxy.sim.worker import SimWorker

StartFleet = Callable[..., FleetStack]


def write(path: Path, workers: Iterable[SimWorker]) -> None:
    """Replace the file at once."""
    entries = [{"url": worker.address, "role": "context"} for worker in workers]
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump(entries))
    os.replace(new, path)


def start(start_fleet: StartFleet, tmp_path: Path, processes: int, **options: Any) -> tuple[FleetStack, Path]:
    path = tmp_path / "workers.yaml"
    path.write_text("[]")
    source = {"type": "file", "path": str(path), "interval": 0.05}
    return start_fleet(processes, listed=0, discovery=[source], **options), path


@pytest.mark.parametrize("processes", [1, 2])
async def test_workers_come_and_go_and_nothing_is_lost(
    start_fleet: StartFleet, tmp_path: Path, processes: int
) -> None:
    admin = tmp_path / "admin.sock"
    fleet, path = start(start_fleet, tmp_path, processes, decode_ms=2.0, admin_listen=f"unix:{admin}")
    first, second, spare = fleet.cluster.context_workers
    await asyncio.to_thread(eventually, fleet.metrics, what="an answer")
    assert fleet.get("/health")[0] == 503
    write(path, [first, second])
    await asyncio.to_thread(fleet.wait_ready)
    load = Load(fleet.port)
    running = asyncio.ensure_future(load.run(64))
    await asyncio.to_thread(eventually, lambda: first.legs["context"] > 5, what="work for the first")

    for listed, gone in ([[second, spare], first], [[first, spare], second], [[first, second], spare]):
        write(path, listed)
        legs = [worker.legs["context"] for worker in listed]
        await asyncio.to_thread(
            eventually,
            lambda listed=listed, legs=legs: all(
                worker.legs["context"] > before + 20 for worker, before in zip(listed, legs, strict=True)
            ),
            what="work for those who are listed",
        )
        await rests(gone)

    # The configuration is read again: what it does not list stays, if the file does.
    fleet.write_config([spare.address])
    fleet.program.process.send_signal(signal.SIGHUP)
    left = spare.legs["context"]
    await asyncio.to_thread(eventually, lambda: spare.legs["context"] > left + 20, what="work after SIGHUP")
    before = first.legs["context"]
    await asyncio.to_thread(eventually, lambda: first.legs["context"] > before + 20, what="work for both")

    # A broken file changes nothing.
    path.write_text("- {url:")
    name = 'disagg_proxy_discovery_errors_total{source="file"}'
    await asyncio.to_thread(eventually, lambda: fleet.metrics().get(name, 0) >= 2, what="the mistake")
    before = first.legs["context"]
    await asyncio.to_thread(eventually, lambda: first.legs["context"] > before + 20, what="work as before")
    metrics = await asyncio.to_thread(fleet.metrics)
    assert metrics['disagg_proxy_discovery_workers{source="file"}'] == 2
    assert metrics['disagg_proxy_discovery_age_seconds{source="file"}'] > 0
    assert metrics["disagg_proxy_processes"] == processes
    (status,) = await asyncio.to_thread(discovery_status, admin)
    assert (status["source"], status["workers"]) == ("file", 2)
    assert "line 1" in status["problem"]

    load.stopping = True
    await running
    assert set(load.statuses) == {200}
    assert load.lost == []
    assert max(value for name, value in metrics.items() if "event_loop_lag" in name) < 1.0
    if processes > 1:
        await asyncio.to_thread(eventually, lambda: not leftovers(fleet), what="zero everywhere")


def discovery_status(socket: Path) -> list[dict[str, Any]]:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), timeout=10) as client:
        found: list[dict[str, Any]] = client.get("http://admin/admin/status").json()["discovery"]
        return found


async def test_a_process_that_starts_again_knows_the_workers(start_fleet: StartFleet, tmp_path: Path) -> None:
    fleet, path = start(start_fleet, tmp_path, 2)
    write(path, fleet.cluster.context_workers)
    await asyncio.to_thread(fleet.wait_ready)
    # While it starts the list changes.
    before = fleet.pids()
    os.kill(before[1], signal.SIGKILL)
    write(path, fleet.cluster.context_workers[1:])
    await asyncio.to_thread(eventually, lambda: fleet.pids()[1] != before[1], what="the successor")
    await asyncio.to_thread(fleet.wait_ready)
    load = Load(fleet.port, BODY)
    running = asyncio.ensure_future(load.run(16))
    await asyncio.to_thread(
        eventually, lambda: set(fleet.requests_by_process()) == {0, 1}, what="work for both"
    )
    gone, *listed = fleet.cluster.context_workers
    await rests(gone)
    left = gone.legs["context"]
    legs = listed[0].legs["context"]
    await asyncio.to_thread(eventually, lambda: listed[0].legs["context"] > legs + 50, what="work")
    assert gone.legs["context"] == left
    load.stopping = True
    await running
    assert set(load.statuses) == {200}
    await asyncio.to_thread(eventually, lambda: not leftovers(fleet), what="zero everywhere")


async def test_minimal_instances_hold_the_proxy_back(start_fleet: StartFleet, tmp_path: Path) -> None:
    fleet, path = start(
        start_fleet, tmp_path, 1, minimal_instances={"context_servers": 3, "generation_servers": 2}
    )
    write(path, fleet.cluster.context_workers[:2])
    name = f'disagg_proxy_worker_ready{{role="context",worker="{fleet.cluster.context_workers[1].address}"}}'
    await asyncio.to_thread(eventually, lambda: fleet.metrics().get(name) == 1, what="two of them")
    assert fleet.get("/health")[0] == 503
    write(path, fleet.cluster.context_workers)
    await asyncio.to_thread(eventually, lambda: fleet.get("/health")[0] == 200, what="readiness")
