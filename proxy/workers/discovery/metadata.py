"""The workers in the metadata server of `trtllm-serve` (`-m`): keys in an etcd that the workers put when they start.

They put them once and without a lease, so a worker that crashed leaves its key: who is there, the health check says.
Nothing is deleted: a proxy that is cut off from the workers would delete them for everybody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence

import msgspec

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.config.discovery.entry import METADATA_SERVER
from proxy.config.listed_worker import ListedWorker, RoleName
from proxy.upstream.access import WorkerAccess
from proxy.workers.discovery.etcd_client import EtcdAccess, EtcdClient, EtcdError
from proxy.workers.discovery.source import SourceLost
from proxy.workers.ping import Finding, Pinger

_PREFIX = "trtllm/"
_ROLES: dict[str, RoleName] = {"CONTEXT": "context", "GENERATION": "generation"}
_HEALTH_ATTEMPTS = 2
_logger = logging.getLogger("proxy.discovery")


class _Metadata(msgspec.Struct):
    url: str
    server_role: str | None = None


_decoder = msgspec.json.Decoder(_Metadata)


class MetadataSource:
    """See `proxy.workers.discovery.source.Source`.

    Args:
        access: to etcd.
        workers: TLS and key for the health checks.
        refresh_interval: seconds between two looks.
        health_check_timeout: seconds for one of a worker's two attempts to answer `/health`.
    """

    name = "metadata server"

    def __init__(
        self,
        access: EtcdAccess,
        workers: WorkerAccess,
        *,
        refresh_interval: float,
        health_check_timeout: float,
    ) -> None:
        self.name = METADATA_SERVER
        self.longest_pause = refresh_interval
        self._access = access
        self._workers = workers
        self._refresh_interval = refresh_interval
        self._health_check_timeout = health_check_timeout
        self._told: set[str] = set()

    async def changes(self) -> AsyncGenerator[Sequence[ListedWorker], None]:
        """See `Source`."""
        client = EtcdClient(self._access)
        try:
            while True:
                snapshot = await client.read(_PREFIX)
                yield await self._healthy(self._read(snapshot.values))
                await asyncio.sleep(self._refresh_interval)
        except EtcdError as error:
            raise SourceLost(str(error)) from None
        finally:
            await client.close()

    def _read(self, values: Mapping[str, str]) -> list[ListedWorker]:
        self._told &= values.keys()
        found: dict[tuple[RoleName, str], ListedWorker] = {}
        for key in sorted(values):
            try:
                metadata = _decoder.decode(values[key])
                role = _ROLES.get(metadata.server_role or "")
                if role is not None:
                    address = parse_worker_address(metadata.url)
                    found[role, address.text] = ListedWorker(address, role)
            except (msgspec.DecodeError, ValueError) as error:
                if key not in self._told:
                    self._told.add(key)
                    _logger.error("the worker %s is ignored: %s", key, error)
        return [found[place] for place in sorted(found)]

    async def _healthy(self, listed: Sequence[ListedWorker]) -> list[ListedWorker]:
        addresses = list({worker.address for worker in listed})
        answers = await asyncio.gather(*map(self._answers, addresses))
        healthy = {address for address, answer in zip(addresses, answers, strict=True) if answer}
        return [worker for worker in listed if worker.address in healthy]

    async def _answers(self, address: WorkerAddress) -> bool:
        pinger = Pinger(address, timeout=self._health_check_timeout, access=self._workers)
        try:
            for _ in range(_HEALTH_ATTEMPTS):
                if (await pinger.ping(fresh=True)).finding is Finding.HEALTHY:
                    return True
            return False
        finally:
            await pinger.close()
