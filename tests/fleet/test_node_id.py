"""Node ids that no other proxy has."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from etcd_server import EtcdServer, encode, listening, needs_etcd
from free_port import free_port

from proxy.config.load import load_settings
from proxy.config.settings import Settings
from proxy.fleet import node_id
from proxy.fleet.node_id import NODE_IDS, NodeIdLease, with_node_id
from proxy.workers.discovery.etcd_client import EtcdAccess, EtcdError

SECONDS = 30.0
PREFIX = "/disagg-proxy/node_ids/"


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path).start()
    yield server
    server.stop()


def settings(uri: str | None = None, **keys: object) -> Settings:
    if uri is not None:
        keys["disagg_cluster"] = {"cluster_uri": uri}
    return load_settings(None, overrides=keys, environ={})


def lease_of(etcd: EtcdServer, seconds: int = 30) -> NodeIdLease:
    return NodeIdLease(EtcdAccess((etcd.url,)), seconds=seconds)


def held(etcd: EtcdServer) -> list[int]:
    return sorted(int(key.removeprefix(PREFIX)) for key in etcd.keys(PREFIX))


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not check():
            await asyncio.sleep(0.02)


@needs_etcd
async def test_everybody_has_another_one(etcd: EtcdServer) -> None:
    leases = [lease_of(etcd) for _ in range(8)]
    claimed = await asyncio.gather(*(lease.claim() for lease in leases))
    assert len(set(claimed)) == 8
    assert held(etcd) == sorted(claimed)
    for lease in leases:
        await lease.release()
    assert held(etcd) == []


@needs_etcd
async def test_the_last_free_one_and_none(etcd: EtcdServer) -> None:
    for number in range(NODE_IDS):
        if number != 77:
            etcd.put(f"{PREFIX}{number}", "somebody")
    first, second = lease_of(etcd), lease_of(etcd)
    assert await first.claim() == 77
    with pytest.raises(EtcdError, match="are taken"):
        await second.claim()
    await second.release()
    await first.release()


@needs_etcd
async def test_the_number_of_a_proxy_that_died_is_free_again(etcd: EtcdServer) -> None:
    lease = lease_of(etcd, seconds=2)
    number = await lease.claim()
    assert held(etcd) == [number]
    await until(lambda: held(etcd) == [])
    await lease.release()


@needs_etcd
async def test_it_is_kept_and_taken_again(etcd: EtcdServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lease = lease_of(etcd, seconds=2)
    number = await lease.claim()
    keeping = asyncio.create_task(lease.keep())
    await asyncio.sleep(2.5)
    assert held(etcd) == [number]
    etcd.stop()
    await until(lambda: "is not held" in caplog.text)
    etcd.lose_data()
    await asyncio.to_thread(etcd.start)
    await until(lambda: "held again" in caplog.text)
    assert held(etcd) == [number]
    # Somebody else has it after the next loss: that is told, and the number taken again when it is free.
    caplog.clear()
    etcd.stop()
    etcd.lose_data()
    await asyncio.to_thread(etcd.start)
    etcd.call("kv/put", {"key": encode(f"{PREFIX}{number}"), "value": encode("somebody")})
    await until(lambda: "another proxy has taken it" in caplog.text)
    await asyncio.sleep(1.0)
    assert "held again" not in caplog.text
    etcd.delete(f"{PREFIX}{number}")
    await until(lambda: "held again" in caplog.text)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await lease.release()
    assert held(etcd) == []


@needs_etcd
async def test_a_proxy_with_an_etcd(etcd: EtcdServer) -> None:
    async with with_node_id(settings(etcd.uri)) as first, with_node_id(settings(etcd.uri)) as second:
        assert held(etcd) == sorted([first.node_id, second.node_id])
    assert held(etcd) == []


@needs_etcd
async def test_a_configured_one_is_not_asked_for(etcd: EtcdServer) -> None:
    async with with_node_id(settings(etcd.uri, node_id=5)) as complete:
        assert complete.node_id == 5
        assert held(etcd) == []


async def test_without_an_etcd_it_is_random(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    seen = set()
    for _ in range(20):
        async with with_node_id(settings()) as complete:
            assert complete.node_id in range(NODE_IDS)
            seen.add(complete.node_id)
    assert len(seen) > 1
    assert "was chosen at random" in caplog.text


async def test_an_etcd_that_is_not_there_keeps_nobody_from_starting(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_node_id(settings(f"etcd://127.0.0.1:{free_port()}")) as complete:
        assert complete.node_id is not None
    assert "no node_id from etcd" in caplog.text
    # One that takes connections and does not answer.
    monkeypatch.setattr(node_id, "_CLAIM_SECONDS", 0.2)

    async with (
        listening() as url,
        asyncio.timeout(SECONDS),
        with_node_id(settings(url.replace("http://", "etcd://"))) as complete,
    ):
        assert complete.node_id is not None
    assert "no answer in time" in caplog.text
