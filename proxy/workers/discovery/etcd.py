"""The workers that have registered in an etcd: `disagg_cluster` with an etcd `cluster_uri`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from proxy.config.discovery.entry import DISAGG_CLUSTER
from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.etcd_client import EtcdAccess, EtcdError
from proxy.workers.discovery.etcd_keys import EtcdKeys
from proxy.workers.discovery.registration import RegisteredWorkers, worker_prefix
from proxy.workers.discovery.source import SourceLost


class EtcdSource:
    """See `proxy.workers.discovery.source.Source`.

    Args:
        access: to etcd.
        cluster_name: of `disagg_cluster`.
        keep_seconds: see `EtcdKeys`.
    """

    name = DISAGG_CLUSTER
    longest_pause = 1.0

    def __init__(self, access: EtcdAccess, cluster_name: str, *, keep_seconds: float) -> None:
        self._keys = EtcdKeys(access, worker_prefix(cluster_name), keep_seconds=keep_seconds)
        self._workers = RegisteredWorkers()

    async def changes(self) -> AsyncGenerator[Sequence[ListedWorker], None]:
        """See `Source`."""
        try:
            async with aclosing(self._keys.follow()) as following:
                async for values in following:
                    yield self._workers.listed(values)
        except EtcdError as error:
            raise SourceLost(str(error)) from None
