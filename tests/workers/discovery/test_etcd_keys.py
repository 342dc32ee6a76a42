"""A copy of etcd's keys that stays right: changes, restarts, compactions, lost data, members that fail."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic
from typing import Any

import pytest
from etcd_server import EtcdServer, Wire, needs_etcd
from free_port import free_port

from proxy.workers.discovery import etcd_keys
from proxy.workers.discovery.etcd_client import EtcdAccess, EtcdError, WatchLost
from proxy.workers.discovery.etcd_keys import EtcdKeys

pytestmark = needs_etcd

SECONDS = 30.0
Following = AsyncGenerator[dict[str, str], None]


def keys_of(*urls: str, **options: Any) -> EtcdKeys:
    return EtcdKeys(EtcdAccess(urls), "/w/", **{"keep_seconds": 60.0, **options})


async def until(following: Following, *keys: str) -> dict[str, str]:
    """The first values with these keys."""
    async with asyncio.timeout(SECONDS):
        async for values in following:
            if sorted(values) == sorted(keys):
                return values
    raise AssertionError("it ended")


async def lost(following: Following) -> EtcdError:
    """Everything until the end."""
    try:
        async with asyncio.timeout(SECONDS):
            async for _ in following:
                pass
    except EtcdError as error:
        return error
    raise AssertionError("it ended without an error")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is checked soon, and nobody is waited for."""
    monkeypatch.setattr(etcd_keys, "_CHECK_SECONDS", 0.1)
    monkeypatch.setattr("proxy.workers.discovery.etcd_client._CALL_SECONDS", 0.5)


async def test_changes_come_at_once(etcd: EtcdServer) -> None:
    etcd.put("/w/1", "a")
    etcd.put("/x/1", "a")
    async with aclosing(keys_of(etcd.url).follow()) as following:
        assert await until(following, "/w/1") == {"/w/1": "a"}
        etcd.put("/w/2", "b")
        assert await until(following, "/w/1", "/w/2") == {"/w/1": "a", "/w/2": "b"}
        etcd.put("/w/2", "c")
        assert (await anext(following))["/w/2"] == "c"
        etcd.delete("/w/1")
        assert await until(following, "/w/2") == {"/w/2": "c"}


async def test_values_that_do_not_change_are_confirmed(etcd: EtcdServer, often: None) -> None:
    async with aclosing(keys_of(etcd.url).follow()) as following, asyncio.timeout(SECONDS):
        for _ in range(5):
            assert await anext(following) == {}


async def test_a_restart_is_survived(etcd: EtcdServer) -> None:
    keys = keys_of(etcd.url)
    etcd.put("/w/1", "a")
    async with aclosing(keys.follow()) as following:
        await until(following, "/w/1")
        etcd.stop()
        await lost(following)
    assert keys.values == {"/w/1": "a"}
    async with aclosing(keys.follow()) as following:
        await lost(following)
    etcd.start()
    async with aclosing(keys.follow()) as following:
        assert await anext(following) == {"/w/1": "a"}
        etcd.put("/w/2", "b")
        await until(following, "/w/1", "/w/2")


async def test_keys_that_an_outage_swallowed_are_kept_for_a_while(etcd: EtcdServer, often: None) -> None:
    now = 100.0
    keys = keys_of(etcd.url, keep_seconds=10.0, clock=lambda: now)
    for name in "1234":
        etcd.put(f"/w/{name}", name)
    async with aclosing(keys.follow()) as following:
        await until(following, "/w/1", "/w/2", "/w/3", "/w/4")
        etcd.stop()
        await lost(following)
    etcd.lose_data()
    etcd.start()
    async with aclosing(keys.follow()) as following:
        assert sorted(await anext(following)) == ["/w/1", "/w/2", "/w/3", "/w/4"]
        # One registers again, with another value; one registers and leaves.
        etcd.put("/w/1", "new")
        etcd.put("/w/2", "2")
        etcd.delete("/w/2")
        assert (await until(following, "/w/1", "/w/3", "/w/4"))["/w/1"] == "new"
        now += 9.0
        await anext(following)
        assert sorted(await anext(following)) == ["/w/1", "/w/3", "/w/4"]
        etcd.stop()
        await lost(following)
    # A second outage does not prolong the time.
    etcd.start()
    async with aclosing(keys.follow()) as following:
        await anext(following)
        now += 1.0
        assert await until(following, "/w/1") == {"/w/1": "new"}


async def test_a_compaction_before_the_watch_begins(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happened since the keys were read has been forgotten: they are read again."""
    read = etcd_keys.EtcdClient.read
    reads = 0

    async def read_and_compact(self: Any, prefix: str) -> Any:
        nonlocal reads
        snapshot = await read(self, prefix)
        reads += 1
        if reads == 1:
            etcd.put("/w/2", "b")
            etcd.put("/w/2", "c")
            etcd.compact()
        return snapshot

    monkeypatch.setattr(etcd_keys.EtcdClient, "read", read_and_compact)
    async with aclosing(keys_of(etcd.url).follow()) as following:
        assert await anext(following) == {}
        assert await until(following, "/w/2") == {"/w/2": "c"}
    assert reads == 2


async def test_a_member_that_dies_is_replaced(etcd: EtcdServer) -> None:
    async with Wire(etcd.port) as wire:
        keys = keys_of(wire.url, etcd.url)
        async with aclosing(keys.follow()) as following:
            assert await anext(following) == {}
            wire.cut()
            assert isinstance(await lost(following), WatchLost)
        etcd.put("/w/1", "a")
        async with aclosing(keys.follow()) as following:
            await until(following, "/w/1")


async def test_a_member_that_falls_silent_is_replaced(etcd: EtcdServer, often: None) -> None:
    """No reset comes: the connection is as quiet as one on which nothing happens."""
    async with Wire(etcd.port) as wire:
        keys = keys_of(wire.url, etcd.url)
        async with aclosing(keys.follow()) as following:
            assert await anext(following) == {}
            wire.swallow()
            began = monotonic()
            assert "does not answer" in str(await lost(following))
            assert monotonic() - began < SECONDS / 2
        etcd.put("/w/1", "a")
        async with aclosing(keys.follow()) as following:
            await until(following, "/w/1")


async def test_the_only_member_falls_silent(etcd: EtcdServer, often: None) -> None:
    async with Wire(etcd.port) as wire:
        keys = keys_of(wire.url)
        async with aclosing(keys.follow()) as following:
            await anext(following)
            wire.swallow()
            await lost(following)


async def test_a_watch_that_misses_changes_is_given_up(
    etcd: EtcdServer, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(self: Any, prefix: str, revision: int) -> AsyncGenerator[list[Any], None]:
        yield []
        await asyncio.sleep(3600)

    monkeypatch.setattr(etcd_keys.EtcdClient, "watch", deaf)
    keys = keys_of(etcd.url)
    async with aclosing(keys.follow()) as following:
        await anext(following)
        etcd.put("/w/1", "a")
        assert "stopped telling changes" in str(await lost(following))
    async with aclosing(keys.follow()) as following:
        assert await anext(following) == {"/w/1": "a"}


async def test_nobody_is_there() -> None:
    async with aclosing(keys_of(f"http://127.0.0.1:{free_port()}").follow()) as following:
        assert "127.0.0.1" in str(await lost(following))


async def test_the_end_comes_in_any_state(etcd: EtcdServer) -> None:
    async with Wire(etcd.port) as wire:
        wire.swallow()
        for url in (etcd.url, wire.url):
            following = keys_of(url).follow()
            task = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with asyncio.timeout(SECONDS):
                await following.aclose()
