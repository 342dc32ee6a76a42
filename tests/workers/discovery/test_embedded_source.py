import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from proxy.config.listed_worker import ListedWorker
from proxy.config.load import load_settings
from proxy.endpoints.cluster_storage import StorageUnavailable, storage_routes
from proxy.fleet.commands import CommandFailed
from proxy.fleet.member import SoleMember
from proxy.workers.discovery import embedded
from proxy.workers.discovery.discovery import Discovery
from proxy.workers.discovery.embedded import EmbeddedSource
from proxy.workers.discovery.key_storage import KeyStorage
from proxy.workers.discovery.storage_calls import STORAGE


def call(number: int, **fields: Any) -> dict[str, Any]:
    value = {"worker_id": str(number), "host": "h", "port": number, "role": 0}
    key = f"/trtllm-disagg/c/workers/{number}"
    return {"operation": "set", "key": key, "value": json.dumps(value), **fields}


def ports(listed: Any) -> list[int]:
    return [worker.address.port for worker in listed]


async def test_what_is_called_is_told_at_once() -> None:
    source = EmbeddedSource("c")
    run = source.commands[STORAGE]
    async with aclosing(source.changes()) as changes, asyncio.timeout(20):
        assert await anext(changes) == ()
        assert await run(call(1, ttl=10)) is True
        assert await run(call(2)) is True
        assert await run({"operation": "set", "key": "/trtllm-disagg/d/workers/3", "value": "{"}) is True
        assert ports(await anext(changes)) == [1, 2]
        key = "/trtllm-disagg/c/workers/1"
        assert await run({"operation": "expire", "key": key, "ttl": 10}) is True
        assert await run({"operation": "delete", "key": key}) is True
        assert await run({"operation": "get", "key": key}) is None
        assert ports(await anext(changes)) == [2]


async def test_what_has_expired_is_swept_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_SWEEP_SECONDS", 0.01)
    now = 0.0
    storage = KeyStorage(lambda: now)
    source = EmbeddedSource("c", storage)
    async with aclosing(source.changes()) as changes, asyncio.timeout(20):
        await source.commands[STORAGE](call(1, ttl=5))
        assert ports(await anext(changes)) == [1]
        now = 4.9
        # Told again and again: it is known to be right.
        assert ports(await anext(changes)) == [1]
        assert ports(await anext(changes)) == [1]
        now = 5.0
        listed = [1]
        while listed:
            listed = ports(await anext(changes))


async def test_the_storage_is_asked_where_the_sources_are_followed() -> None:
    async def take(name: str, listed: Any) -> None:
        told.append((name, listed))

    told: list[tuple[str, tuple[ListedWorker, ...]]] = []
    discovery = Discovery([EmbeddedSource("c")], take)
    assert set(discovery.commands) == {"discovery", STORAGE}


async def test_nobody_holds_the_storage() -> None:
    """The supervisor has gone: the worker is told to come again."""
    member = SoleMember()

    async def gone(command: str, arguments: Any = None) -> Any:
        raise CommandFailed("the process has gone")

    member.ask_central = gone  # type: ignore[method-assign]
    settings = load_settings(
        None, overrides={"disagg_cluster": {"cluster_uri": "http://localhost:8000"}}, environ={}
    )
    endpoint = storage_routes(settings, member)["/get"]["GET"]

    async def never(*_: Any) -> Any:
        raise AssertionError("nothing is to be read or sent")

    with pytest.raises(StorageUnavailable) as caught:
        await endpoint({"headers": [], "query_string": b"key=x"}, never, never)
    assert caught.value.status == 502
