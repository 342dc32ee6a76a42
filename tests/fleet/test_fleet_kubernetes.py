"""A roll-out in Kubernetes under load, with and without a supervisor."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fake_kubernetes import FakeKubernetes, endpoint, endpoint_slice
from fleet_load import Load
from fleet_rest import rests
from fleet_rows import leftovers
from fleet_stack import FleetStack
from program import eventually

from proxy.sim.worker import SimWorker

StartFleet = Callable[..., FleetStack]


@pytest.fixture
async def api() -> AsyncIterator[FakeKubernetes]:
    api = await FakeKubernetes().start()
    yield api
    await api.stop()


def pod(worker: SimWorker, service: str = "ctx", **conditions: bool) -> dict[str, Any]:
    """A slice of its own for each: all are on the same address, with different ports of the same name."""
    host, port = worker.address.rsplit(":", 1)
    ports = [{"name": "http", "port": int(port)}, {"name": "metrics", "port": 1}]
    one = endpoint(worker.name, host, nodeName="n", zone="z", **conditions)
    return endpoint_slice(worker.name, one, service=service, ports=ports)


async def soon(check: Callable[[], Any], what: str) -> None:
    await asyncio.to_thread(eventually, check, what=what)


def start(start_fleet: StartFleet, api: FakeKubernetes, processes: int, **options: Any) -> FleetStack:
    common = {"type": "kubernetes", "namespace": "prod", "port": "http", "api": api.url, "watch": 1.0}
    sources = [
        {**common, "service": "ctx", "role": "context"},
        {**common, "service": "gen", "role": "generation"},
    ]
    top = {"generation_servers": {"router": {"type": "load_balancing"}}}
    return start_fleet(
        processes, listed=0, top=top, router="load_balancing", discovery=sources, decode_ms=2.0, **options
    )


async def put_all(fleet: FleetStack, api: FakeKubernetes, *context_workers: SimWorker) -> None:
    """These and all generation workers become pods; waits until the fleet is ready."""
    for worker in context_workers:
        api.put(pod(worker))
    for worker in fleet.cluster.generation_workers:
        api.put(pod(worker, "gen"))
    await asyncio.to_thread(fleet.wait_ready)


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_roll_out_loses_nothing(start_fleet: StartFleet, api: FakeKubernetes, processes: int) -> None:
    fleet = await asyncio.to_thread(start, start_fleet, api, processes)
    first, second, spare = fleet.cluster.context_workers
    await put_all(fleet, api, first, second)
    load = Load(fleet.port)
    running = asyncio.ensure_future(load.run(64))

    async def works(worker: SimWorker) -> None:
        before = worker.legs["context"]
        await soon(lambda: worker.legs["context"] > before + 20, f"work for {worker.name}")

    def known(worker: SimWorker) -> bool:
        metrics = fleet.metrics()
        return not metrics or any("worker_state" in name and worker.address in name for name in metrics)

    await works(first)
    # A new pod is not used before it is ready; the old one terminates, drains and goes.
    api.put(pod(spare, ready=False))
    await works(second)
    assert spare.legs["context"] == 0
    api.put(pod(spare))
    await works(spare)
    api.put(pod(first, ready=False, serving=True, terminating=True))
    name = f'disagg_proxy_worker_state{{role="context",state="draining",worker="{first.address}"}}'
    await soon(lambda: fleet.metrics().get(name) == processes, "draining")
    await rests(first)
    api.delete(first.name)
    await soon(lambda: not known(first), "its leave")

    # The watch breaks in the middle of a line, and nobody hears that a pod has gone.
    api.drop_watches(b'{"type":"DEL')
    api.delete_unheard(second.name)
    await soon(lambda: not known(second), "the other's leave")
    await works(spare)
    # The server's history is gone; it is down, and everybody goes on with the last list.
    api.put(pod(first))
    api.compact()
    await works(first)
    await api.stop()
    errors = 'disagg_proxy_discovery_errors_total{source="kubernetes:ctx"}'
    before = (await asyncio.to_thread(fleet.metrics)).get(errors, 0)
    await soon(lambda: fleet.metrics().get(errors, 0) >= before + 1, "errors")
    await works(first)
    await works(spare)
    await api.start()
    api.put(pod(second))
    await works(second)

    load.stopping = True
    await running
    assert set(load.statuses) == {200}
    assert load.lost == []
    source = '{source="kubernetes:ctx"}'
    await soon(lambda: fleet.metrics()[f"disagg_proxy_discovery_workers{source}"] == 3, "all three")
    await soon(lambda: fleet.metrics()[f"disagg_proxy_discovery_age_seconds{source}"] < 5, "youth")
    metrics = await asyncio.to_thread(fleet.metrics)
    assert max(value for name, value in metrics.items() if "event_loop_lag" in name) < 1.0
    if processes > 1:
        await soon(lambda: not leftovers(fleet), "zero everywhere")


async def test_a_process_that_starts_again_gets_the_pods(
    start_fleet: StartFleet, api: FakeKubernetes
) -> None:
    fleet = await asyncio.to_thread(start, start_fleet, api, 2)
    first, second, _ = fleet.cluster.context_workers
    await put_all(fleet, api, first, second)
    lists = api.lists
    before = fleet.pids()
    os.kill(before[0], signal.SIGKILL)
    await soon(lambda: fleet.pids()[0] != before[0], "the successor")
    await asyncio.to_thread(fleet.wait_ready)
    load = Load(fleet.port)
    await load.run(16, 4)
    assert load.statuses == {200: 64}
    # The supervisor alone talks to the API server.
    assert api.lists == lists == 2
