"""The workers that have registered in the proxy's own cluster storage: `disagg_cluster` with an http `cluster_uri`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from time import monotonic

from proxy.config.discovery.entry import DISAGG_CLUSTER
from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.key_storage import KeyChange, KeyStorage
from proxy.workers.discovery.registration import RegisteredWorkers, worker_prefix
from proxy.workers.discovery.storage_calls import STORAGE, StorageCalls

_SWEEP_SECONDS = 1.0


class EmbeddedSource:
    """See `proxy.workers.discovery.source.Source`.

    Args:
        cluster_name: of `disagg_cluster`.
        storage: where the workers register.

    Attributes:
        commands: how the routes that the workers call reach the storage; see `Discovery.commands`.
    """

    name = DISAGG_CLUSTER
    longest_pause = 1.0

    def __init__(self, cluster_name: str, storage: KeyStorage | None = None) -> None:
        self._storage = storage = storage if storage is not None else KeyStorage(monotonic)
        self.commands = {STORAGE: StorageCalls(storage).run}
        self._prefix = worker_prefix(cluster_name)
        self._workers = RegisteredWorkers()

    async def changes(self) -> AsyncGenerator[Sequence[ListedWorker], None]:
        """See `Source`; also removes what has expired, every second."""
        changed = asyncio.Event()

        def note(_: KeyChange) -> None:
            changed.set()

        stop = self._storage.watch(self._prefix, note)
        try:
            while True:
                changed.clear()
                yield self._workers.listed(self._storage.get_prefix(self._prefix))
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SWEEP_SECONDS):
                        await changed.wait()
                self._storage.sweep()
        finally:
            stop()
