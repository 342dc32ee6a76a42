"""How a worker makes itself known in the cluster storage: registers, sends heartbeats, deregisters, or crashes."""

import asyncio
import base64
import contextlib
import json
import os
import random
import time
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

CALL_SECONDS = 5.0  # the real worker's time-out
_ROLES = {"context": 0, "generation": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationSettings:
    """The ``disagg_cluster`` of a worker's configuration; ``cluster_uri`` is also ``--disagg_cluster_uri``."""

    cluster_uri: str
    cluster_name: str = ""
    heartbeat_seconds: float = 5.0  # heartbeat_interval_sec
    inactive_seconds: int = 10  # inactive_timeout_sec
    retry_seconds: float = 5.0  # the real worker's constant


class Storage(Protocol):
    """The cluster storage as a worker sees it."""

    async def set(self, key: str, value: str, ttl: int) -> bool:
        """Store a key that does not exist."""
        ...

    async def expire(self, key: str, ttl: int) -> bool:
        """A heartbeat; False when the key is gone."""
        ...

    async def delete(self, key: str) -> bool:
        """Remove the key."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class HttpStorage:
    """Served by the orchestrator."""

    def __init__(self, uri: str) -> None:
        self._client = _client(base_url=uri, verify=uri.startswith("https:"))

    async def set(self, key: str, value: str, ttl: int) -> bool:
        """See `Storage`."""
        item = {"key": key, "value": value, "expire_time": -1, "ttl": ttl, "overwrite_if_exists": False}
        return await self._done("POST", "/set", json=item)

    async def expire(self, key: str, ttl: int) -> bool:
        """See `Storage`."""
        return await self._done("GET", "/expire", params={"key": key, "ttl": str(ttl)})

    async def delete(self, key: str) -> bool:
        """See `Storage`."""
        return await self._done("DELETE", "/delete", params={"key": key})

    async def _done(self, method: str, path: str, **options: Any) -> bool:
        return (await self._client.request(method, path, **options)).status_code == 200

    async def aclose(self) -> None:
        """See `Storage`."""
        await self._client.aclose()


class EtcdStorage:
    """etcd, through its JSON gateway; each key has a lease of its own."""

    def __init__(self, uri: str) -> None:
        endpoints = [urlsplit(each) for each in uri.split(",")]
        self._urls = [f"http://{each.hostname}:{each.port}" for each in endpoints]
        self._client = _client(verify=False)
        self._leases: dict[str, str] = {}

    async def set(self, key: str, value: str, ttl: int) -> bool:
        """See `Storage`."""
        if key not in self._leases:
            granted = await self._call("lease/grant", {"TTL": str(ttl)})
            self._leases[key] = granted["ID"]
        encoded, lease = _encode(key), self._leases[key]
        put = {"key": encoded, "value": _encode(value), "lease": lease}
        absent = {"key": encoded, "target": "CREATE", "create_revision": "0"}
        done = await self._call("kv/txn", {"compare": [absent], "success": [{"request_put": put}]})
        if "code" in done:
            del self._leases[key]
        return bool(done.get("succeeded"))

    async def expire(self, key: str, ttl: int) -> bool:
        """See `Storage`."""
        answer = await self._call("lease/keepalive", {"ID": self._leases[key]})
        if int(answer["result"].get("TTL", 0)) > 0:
            return True
        del self._leases[key]
        return False

    async def delete(self, key: str) -> bool:
        """See `Storage`."""
        return "deleted" in await self._call("kv/deleterange", {"key": _encode(key)})

    async def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask the first endpoint that can be reached."""
        *others, last = self._urls
        for url in others:
            with contextlib.suppress(httpx.TransportError):
                return await self._post(url, path, body)
        return await self._post(last, path, body)

    async def _post(self, url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = (await self._client.post(f"{url}/v3/{path}", json=body)).json()
        return answer

    async def aclose(self) -> None:
        """See `Storage`."""
        await self._client.aclose()


def _client(*, verify: bool, base_url: str = "") -> httpx.AsyncClient:
    # Without TLS no certificates are loaded, which takes long.
    return httpx.AsyncClient(base_url=base_url, timeout=CALL_SECONDS, trust_env=False, verify=verify)


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_STORAGES: dict[str, type[HttpStorage] | type[EtcdStorage]] = {
    "http": HttpStorage,
    "https": HttpStorage,
    "etcd": EtcdStorage,
}


def storage_class(uri: str) -> type[HttpStorage] | type[EtcdStorage]:
    """Which client speaks to a ``cluster_uri``; raises `ValueError` when none does."""
    scheme = uri.partition("://")[0]
    if scheme not in _STORAGES:
        raise ValueError(f"{uri}: expected http://, https:// or etcd://")
    return _STORAGES[scheme]


class Registration:
    """One worker's. `start` may be called again after `crash`: it is another process then, with another id.

    ``address`` is ``host:port``.
    """

    def __init__(self, settings: RegistrationSettings, role: str, address: str) -> None:
        self.settings = settings
        self.role = role
        self.address = address
        self.worker_id = ""
        self.registered = False
        self.heartbeats = 0
        self._storage: Storage | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def key(self) -> str:
        """The worker's key in the storage."""
        return f"/trtllm-disagg/{self.settings.cluster_name}/workers/{self.worker_id}"

    @property
    def value(self) -> str:
        """Its value."""
        host, _, port = self.address.rpartition(":")
        info = {"worker_id": self.worker_id, "host": host, "port": int(port), "role": _ROLES[self.role]}
        return json.dumps(info)

    def start(self) -> None:
        """Register in the background, until it succeeds, and send heartbeats."""
        started = f"{int(time.time() * 1000)}-{os.getpid()}-{random.randint(0, 1000):03}"  # noqa: S311 - a name
        self.worker_id = f"{self.role.upper()}-{self.address}-{started}"
        self._storage = storage_class(self.settings.cluster_uri)(self.settings.cluster_uri)
        self._task = asyncio.get_running_loop().create_task(self._run(self._storage))

    async def stop(self) -> None:
        """Deregister; nothing happens if the storage cannot be reached."""
        storage = self._storage
        if storage is not None and self._task is not None:
            self._task.cancel()
            if self.registered:
                with contextlib.suppress(httpx.HTTPError):
                    await storage.delete(self.key)
        await self.crash()

    async def crash(self) -> None:
        """Be silent from now on, without a word."""
        task, storage = self._task, self._storage
        self._task = self._storage = None
        self.registered = False
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if storage is not None:
            await storage.aclose()

    async def _run(self, storage: Storage) -> None:
        settings = self.settings
        await self._register(storage)
        if not 0 < settings.heartbeat_seconds < settings.inactive_seconds:
            return  # as the real worker: it disappears when its time is over
        while True:
            await asyncio.sleep(settings.heartbeat_seconds)
            if await _try(storage.expire(self.key, settings.inactive_seconds)):
                self.heartbeats += 1
            else:
                self.registered = False
                await self._register(storage)

    async def _register(self, storage: Storage) -> None:
        settings = self.settings
        while not await _try(storage.set(self.key, self.value, settings.inactive_seconds)):  # noqa: ASYNC110 - a retry
            await asyncio.sleep(settings.retry_seconds)
        self.registered = True


async def _try(call: Any) -> bool:
    try:
        return bool(await call)
    except (httpx.HTTPError, KeyError, ValueError):
        return False
