"""Workers that are the endpoints of a Kubernetes Service."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from proxy.config.discovery.kubernetes import KubernetesEntry
from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.endpoint_slices import EndpointSlice, workers_in
from proxy.workers.discovery.kubernetes_api import Expired, KubernetesApi, read_event
from proxy.workers.discovery.node_domains import NodeDomains
from proxy.workers.discovery.source import SourceLost

# A list or a watch that is void sooner is not tried again at once.
_TOO_SOON = 0.5


class KubernetesSource:
    """See `proxy.workers.discovery.source.Source`.

    Everything is listed, then changes are watched from there: a watch that ends in order is taken up where it ended,
    one that breaks is a failure, after which everything is listed again, as it is every `relist` seconds.

    Args:
        entry: the Service.
        clock: seconds, monotonic.
        environ: of the process.
    """

    longest_pause = 30.0

    def __init__(
        self,
        entry: KubernetesEntry,
        *,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.name = entry.name
        self._entry = entry
        self._clock = clock
        self._environ = environ
        self._slices: dict[str, EndpointSlice] = {}
        self._domains = NodeDomains(entry)

    async def changes(self) -> AsyncGenerator[Sequence[ListedWorker], None]:
        """See `Source`."""
        async with KubernetesApi(self._entry, self._environ) as api:
            while True:
                found = await api.list_slices()
                listed_at = self._clock()
                self._slices = {each.metadata.uid: each for each in found.items or ()}
                self._domains.forget()
                yield await self._workers(api)
                try:
                    watch = self._watch(api, found.metadata.resource_version)
                    async with aclosing(watch) as changes:
                        async for _ in changes:
                            yield await self._workers(api)
                except Expired:
                    if self._clock() - listed_at < _TOO_SOON:
                        raise SourceLost("a list is too old as soon as it is read") from None

    async def _watch(self, api: KubernetesApi, version: str) -> AsyncGenerator[None, None]:
        """Keep the slices up to date, until they are to be listed again."""
        due = self._clock() + self._entry.relist
        while (left := due - self._clock()) > 0:
            began = self._clock()
            async with aclosing(api.watch(version, min(left, self._entry.watch))) as batches:
                async for events in batches:
                    for event in events:
                        version, found = read_event(event)
                        if found is not None:
                            self._put(event.type, found)
                    yield
            if self._clock() - began < _TOO_SOON:
                raise SourceLost("the API server ends watches at once")
            yield  # nothing was missed

    def _put(self, event: str, found: EndpointSlice) -> None:
        if event == "DELETED":
            self._slices.pop(found.metadata.uid, None)
        else:
            self._slices[found.metadata.uid] = found

    async def _workers(self, api: KubernetesApi) -> tuple[ListedWorker, ...]:
        await self._domains.learn(api, self._slices.values())
        return workers_in(self._slices.values(), self._entry, self._domains.by_node)
