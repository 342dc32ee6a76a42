"""Workers of SRV records under load: records come and go, and the name server too."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dns_zone import Zone
from fleet_load import Load
from fleet_rest import rests
from fleet_rows import leftovers
from fleet_stack import FleetStack
from program import eventually

from proxy.sim.worker import SimWorker

StartFleet = Callable[..., FleetStack]
SERVICE = "_http._tcp.ctx.test"


@pytest.fixture
def zone() -> Iterator[Zone]:
    zone = Zone({}).start()
    zone.ttl = zone.negative_ttl = 0
    yield zone
    zone.stop()


def tell(zone: Zone, *workers: SimWorker) -> None:
    ports = [worker.address.rpartition(":")[2] for worker in workers]
    zone.records[SERVICE, "SRV"] = [f"0 0 {port} localhost" for port in ports]


async def soon(check: Callable[[], Any], what: str) -> None:
    await asyncio.to_thread(eventually, check, what=what)


async def test_records_come_and_go(start_fleet: StartFleet, zone: Zone) -> None:
    source = {
        "type": "dns",
        "srv": SERVICE,
        "role": "context",
        "nameservers": [f"127.0.0.1:{zone.port}"],
        "shortest": 0.05,
        "longest": 0.5,
        "timeout": 0.3,
        "when_empty": "remove",
    }
    fleet = await asyncio.to_thread(
        start_fleet, 2, listed=0, discovery=[source], decode_ms=2.0, router="load_balancing"
    )
    first, second, spare = fleet.cluster.context_workers
    tell(zone, first, second)
    await asyncio.to_thread(fleet.wait_ready)
    load = Load(fleet.port)
    running = asyncio.ensure_future(load.run(64))

    async def work_for(*workers: SimWorker) -> None:
        before = [worker.legs["context"] for worker in workers]
        await soon(
            lambda: all(w.legs["context"] > n + 20 for w, n in zip(workers, before, strict=True)), "work"
        )

    await work_for(first, second)
    tell(zone, second, spare)
    await work_for(second, spare)
    await rests(first)
    # The name server fails, then it is down: the last answer stays in force.
    problem = 'disagg_proxy_discovery_errors_total{source="dns:_http._tcp.ctx.test"}'
    for failure in (lambda: setattr(zone, "code", "SERVFAIL"), zone.stop):
        failed = (await asyncio.to_thread(fleet.metrics)).get(problem, 0)
        failure()
        await soon(lambda failed=failed: fleet.metrics().get(problem, 0) > failed, "errors")
        await work_for(second, spare)
    zone.code = None
    zone.start()
    tell(zone, first)
    await work_for(first)
    await rests(second)
    load.stopping = True
    await running
    assert set(load.statuses) == {200}
    assert load.lost == []
    # The name is gone, which here means that there is nobody.
    zone.records.clear()
    await soon(lambda: fleet.get("/health")[0] == 503, "nobody")
    await soon(lambda: not leftovers(fleet), "zero everywhere")
