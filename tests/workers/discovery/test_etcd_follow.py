"""Workers that register in a real etcd: the proxy follows them, through crashes and a restart of the etcd."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from etcd_server import EtcdServer, needs_etcd
from loop_lag import LoopLag
from program import eventually
from registered_workers import RegisteringProxy, RegisteringWorkers, RunProgram, serving

from proxy.lifecycle.service import Service
from proxy.sim import ThreadedSimCluster
from proxy.sim.registration import RegistrationSettings
from proxy.workers.discovery.registration import worker_prefix
from proxy.workers.worker import Role

pytestmark = needs_etcd

SECONDS = 30.0
# Three rounds on a machine that has better things to do: code that blocks the loop is seen in each of them.
ROUNDS = 3
MOST_LAG = 0.02
FOLLOW_SECONDS = 2.0


def cluster(etcd: EtcdServer) -> dict[str, Any]:
    return {"cluster_uri": etcd.uri, "inactive_timeout_sec": 3}


def addresses(service: Service) -> list[str]:
    return [worker.address.text for worker in service.registry.workers if not worker.leaving]


async def until(check: Callable[[], bool], seconds: float = SECONDS) -> float:
    """How long it took."""
    now = asyncio.get_running_loop().time
    began = now()
    while not check():
        assert now() < began + seconds
        await asyncio.sleep(0.005)
    return now() - began


class Fleet:
    """Keys of many workers, put directly."""

    def __init__(self, etcd: EtcdServer, workers: int) -> None:
        self._etcd = etcd
        self._workers = workers
        self.addresses = [f"127.0.0.1:{1 + number}" for number in range(workers)]

    def put(self) -> None:
        for number in range(self._workers):
            value = {"worker_id": f"w{number}", "host": "127.0.0.1", "port": 1 + number, "role": number % 2}
            self._etcd.put(f"{worker_prefix('')}w{number}", json.dumps(value))


async def quiet(round_of: Callable[[], Awaitable[None]]) -> float:
    """The lag of the best of some rounds."""
    worst = []
    for _ in range(ROUNDS):
        async with LoopLag() as lag:
            await round_of()
        worst.append(lag.worst)
        if lag.worst < MOST_LAG:
            break
    return min(worst)


async def test_the_loop_turns_while_workers_come_and_go_and_etcd_restarts(
    etcd: EtcdServer, run_program: RunProgram
) -> None:
    workers = await asyncio.to_thread(RegisteringWorkers, run_program, etcd.uri)
    async with serving(disagg_cluster=cluster(etcd)) as (service, _):
        await until(lambda: service.ready)

        async def a_round() -> None:
            await asyncio.to_thread(workers.crash)
            await until(lambda: addresses(service) == [])
            await asyncio.to_thread(workers.restart)
            await until(lambda: service.ready)
            etcd.stop()
            await asyncio.sleep(0.7)
            assert sorted(addresses(service)) == workers.addresses
            assert service.ready
            await asyncio.to_thread(etcd.start)
            await asyncio.sleep(0.7)
            assert sorted(addresses(service)) == workers.addresses

        assert await quiet(a_round) < MOST_LAG


async def test_changes_are_followed_at_once(etcd: EtcdServer) -> None:
    """Within two seconds, after a restart of the etcd too."""
    fleet = Fleet(etcd, 20)
    async with serving(disagg_cluster=cluster(etcd)) as (service, _):
        for _ in range(2):
            await asyncio.to_thread(fleet.put)
            assert await until(lambda: sorted(addresses(service)) == sorted(fleet.addresses)) < FOLLOW_SECONDS
            await asyncio.to_thread(etcd.delete, f"{worker_prefix('')}w0")
            assert await until(lambda: "127.0.0.1:1" not in addresses(service)) < FOLLOW_SECONDS
            await asyncio.to_thread(etcd.restart)
            await asyncio.to_thread(fleet.put)
            assert await until(lambda: "127.0.0.1:1" in addresses(service)) < FOLLOW_SECONDS


async def test_an_outage_takes_no_worker_away(etcd: EtcdServer) -> None:
    """Nor does an etcd that comes back without its data, as long as the workers register again."""
    registration = RegistrationSettings(
        cluster_uri=etcd.uri, heartbeat_seconds=0.3, inactive_seconds=3, retry_seconds=0.3
    )
    with ThreadedSimCluster(1, 1, registration=registration) as workers:
        listed = sorted([*workers.context_urls, *workers.generation_urls])
        async with serving(disagg_cluster={**cluster(etcd), "inactive_timeout_sec": 30}) as (service, _):
            await until(lambda: service.ready)
            known = {role: service.registry.of_role(role) for role in Role}
            missing: list[list[str]] = []

            async def watch() -> None:
                while True:
                    if sorted(addresses(service)) != listed or not service.ready:
                        missing.append(addresses(service))
                    await asyncio.sleep(0.01)

            watching = asyncio.create_task(watch())
            await asyncio.to_thread(etcd.restart)
            await asyncio.sleep(0.5)
            etcd.stop()
            etcd.lose_data()
            await asyncio.to_thread(etcd.start)
            await until(lambda: len(etcd.keys(worker_prefix(""))) == 2)
            await asyncio.sleep(0.5)
            watching.cancel()
            assert missing == []
            assert {role: service.registry.of_role(role) for role in Role} == known


@pytest.mark.parametrize("processes", [1, 2])
def test_all_processes_follow(
    etcd: EtcdServer, run_program: RunProgram, tmp_path: Path, processes: int
) -> None:
    proxy = RegisteringProxy(run_program, tmp_path, processes, cluster(etcd))
    assert "is held in etcd" in proxy.program.err
    workers = RegisteringWorkers(run_program, etcd.uri)
    proxy.wait_for(*workers.addresses)
    eventually(lambda: proxy.complete(), what="an answer")
    workers.leave()
    proxy.wait_for()
    workers.restart()
    proxy.wait_for(*workers.addresses)
    workers.crash()
    proxy.wait_for()
