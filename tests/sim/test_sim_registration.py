"""How simulated workers register: as `trtllm-serve` workers do."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from proxy.sim import registration as module
from proxy.sim.registration import Registration, RegistrationSettings

SECONDS = 20.0


class Storage:
    """Records the calls; ``answers`` are what comes next, True for ever after them. An exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[Any, ...]] = []
        self.closed = False

    def _answer(self, *call: Any) -> bool:
        self.calls.append(call)
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]

    async def set(self, key: str, value: str, ttl: int) -> bool:
        return self._answer("set", key, value, ttl)

    async def expire(self, key: str, ttl: int) -> bool:
        return self._answer("expire", key, ttl)

    async def delete(self, key: str) -> bool:
        return self._answer("delete", key)

    async def aclose(self) -> None:
        self.closed = True


def registration(monkeypatch: pytest.MonkeyPatch, storage: Storage, **fields: Any) -> Registration:
    monkeypatch.setattr(module, "storage_class", lambda uri: lambda uri: storage)
    given = {"heartbeat_seconds": 0.01, "inactive_seconds": 10, "retry_seconds": 0.01, **fields}
    settings = RegistrationSettings(cluster_uri="http://proxy:8000", cluster_name="c", **given)
    return Registration(settings, "generation", "10.0.0.6:8002")


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not check():
            await asyncio.sleep(0.002)


async def test_key_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage()
    worker = registration(monkeypatch, storage)
    worker.start()
    await until(lambda: worker.heartbeats > 1)
    await worker.stop()
    (_, key, value, ttl), (_, *heartbeat) = storage.calls[:2]
    assert re.fullmatch(r"GENERATION-10\.0\.0\.6:8002-\d{13}-\d+-\d{3,4}", worker.worker_id)
    assert key == f"/trtllm-disagg/c/workers/{worker.worker_id}"
    assert json.loads(value) == {
        "worker_id": worker.worker_id,
        "host": "10.0.0.6",
        "port": 8002,
        "role": 1,
    }
    assert (ttl, heartbeat) == (10, [key, 10])
    assert storage.calls[-1] == ("delete", key)
    assert storage.closed


async def test_it_tries_until_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(False, module.httpx.ConnectError("nobody"), False, True)
    worker = registration(monkeypatch, storage)
    worker.start()
    await until(lambda: worker.heartbeats > 0)
    await worker.stop()
    assert storage.names()[:5] == ["set", "set", "set", "set", "expire"]


@pytest.mark.parametrize("failure", [False, module.httpx.ReadTimeout("late")])
async def test_a_heartbeat_that_fails_makes_it_register_again(
    monkeypatch: pytest.MonkeyPatch, failure: Any
) -> None:
    storage = Storage(True, True, failure, True)
    worker = registration(monkeypatch, storage)
    worker.start()
    await until(lambda: worker.heartbeats > 1)
    await worker.stop()
    assert storage.names()[:5] == ["set", "expire", "expire", "set", "expire"]


@pytest.mark.parametrize("interval", [0, 10, 11])
async def test_intervals_without_heartbeats(monkeypatch: pytest.MonkeyPatch, interval: float) -> None:
    storage = Storage()
    worker = registration(monkeypatch, storage, heartbeat_seconds=interval)
    worker.start()
    await until(lambda: worker.registered)
    await asyncio.sleep(0.05)
    assert storage.names() == ["set"]
    await worker.stop()


async def test_a_crash_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage()
    worker = registration(monkeypatch, storage)
    worker.start()
    await until(lambda: worker.registered)
    first = worker.worker_id
    await worker.crash()
    assert "delete" not in storage.names()
    await asyncio.sleep(0.002)
    worker.start()
    assert worker.worker_id != first
    await worker.stop()


def test_uris() -> None:
    assert module.storage_class("https://proxy:8000") is module.HttpStorage
    assert module.storage_class("etcd://a:1,etcd://b:2") is module.EtcdStorage
    with pytest.raises(ValueError, match="expected http"):
        module.storage_class("proxy:8000")
