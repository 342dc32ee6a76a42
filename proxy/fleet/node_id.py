"""The part of the request ids that tells proxies apart, and how a proxy gets one that no other has."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic

from msgspec.structs import replace

from proxy.config.settings import Settings
from proxy.workers.discovery.etcd_access import etcd_access
from proxy.workers.discovery.etcd_client import EtcdAccess, EtcdClient, EtcdError, LeaseGone

# Eight bits of each disagg_request_id (proxy.wire.ids).
NODE_IDS = 256
_LEASE_SECONDS = 30
_CLAIM_SECONDS = 5.0
_RELEASE_SECONDS = 2.0
_logger = logging.getLogger("proxy")


@asynccontextmanager
async def with_node_id(settings: Settings) -> AsyncIterator[Settings]:
    """A configuration that has a `node_id`, for as long as the block runs.

    One that is configured is used as it is. Without one, a proxy that uses etcd takes a free one there and gives it
    back at the end; any other, or one whose etcd does not answer in time, chooses at random.
    """
    if settings.node_id is not None:
        yield settings
        return
    access = etcd_access(settings)
    if access is None:
        yield _random(settings)
        return
    lease = NodeIdLease(access)
    try:
        async with asyncio.timeout(_CLAIM_SECONDS):
            node_id = await lease.claim()
    except (EtcdError, TimeoutError) as error:
        _logger.warning("no node_id from etcd: %s", str(error) or "no answer in time")
        await lease.release()
        yield _random(settings)
        return
    _logger.info("node_id %d is held in etcd", node_id)
    keeping = asyncio.get_running_loop().create_task(lease.keep())
    try:
        yield replace(settings, node_id=node_id)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await lease.release()


def _random(settings: Settings) -> Settings:
    node_id = secrets.randbelow(NODE_IDS)
    _logger.info("node_id %d was chosen at random", node_id)
    return replace(settings, node_id=node_id)


class NodeIdLease:
    """One number of 0 to 255, kept by a lease as long as the proxy runs.

    Args:
        access: to etcd. All proxies that use it share the numbers, whichever workers they serve.
        prefix: of the keys; the number follows.
        seconds: after which the number of a proxy that has died is free.
    """

    def __init__(
        self, access: EtcdAccess, *, prefix: str = "/disagg-proxy/node_ids/", seconds: int = _LEASE_SECONDS
    ) -> None:
        self._client = EtcdClient(access)
        self._prefix = prefix
        self._seconds = seconds
        self._lease = 0
        self._key = ""
        self._held = False
        self._owner = f"{socket.gethostname()} pid {os.getpid()}"

    async def claim(self) -> int:
        """Take a free number.

        Raises:
            EtcdError: etcd cannot be reached, or all numbers are taken.
        """
        taken = (await self._client.read(self._prefix, keys_only=True)).values
        free = [number for number in range(NODE_IDS) if f"{self._prefix}{number}" not in taken]
        secrets.SystemRandom().shuffle(free)  # many proxies start at once
        self._lease = await self._client.grant(self._seconds)
        for number in free:
            key = f"{self._prefix}{number}"
            if await self._client.create(key, self._owner, lease=self._lease):
                self._key, self._held = key, True
                return number
        raise EtcdError(f"all {NODE_IDS} numbers below {self._prefix} are taken")

    async def keep(self) -> None:
        """Keep the number until this is cancelled; one that was lost in an outage is taken again."""
        well, renewed, pause = True, monotonic(), self._seconds / 3
        while True:
            await asyncio.sleep(pause)
            pause = min(1.0, self._seconds / 3)
            try:
                held, problem = await self._hold(), "another proxy has taken it"
                if held:
                    renewed, pause = monotonic(), self._seconds / 3
            except EtcdError as error:
                # Until the lease has run out nobody else gets the number.
                held, problem = well and monotonic() - renewed < self._seconds, str(error)
            if held and not well:
                _logger.info("the node_id is held again")
            elif well and not held:
                _logger.error("the node_id is not held, request ids may collide: %s", problem)
            well = held

    async def _hold(self) -> bool:
        try:
            await self._client.keep_alive(self._lease)
        except LeaseGone:
            self._held = False
            self._lease = await self._client.grant(self._seconds)
        if not self._held:
            self._held = await self._client.create(self._key, self._owner, lease=self._lease)
        return self._held

    async def release(self) -> None:
        """Give the number back, if etcd answers soon, and close the connections."""
        if self._lease:
            with suppress(EtcdError, TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._client.revoke(self._lease)
        await self._client.close()
