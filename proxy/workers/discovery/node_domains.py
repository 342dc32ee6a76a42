"""The domains of Kubernetes nodes: a label that EndpointSlices do not tell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from proxy.config.discovery.kubernetes import KubernetesEntry
from proxy.workers.discovery.endpoint_slices import EndpointSlice
from proxy.workers.discovery.kubernetes_api import KubernetesApi
from proxy.workers.discovery.source import SourceLost

_AT_ONCE = 8
# The workers wait for their domains no longer.
_SECONDS = 5.0
_logger = logging.getLogger("proxy.discovery")


class NodeDomains:
    """Each node is asked for once, and again when everything is listed again.

    Args:
        entry: names the label; without one nothing is asked for.

    Attributes:
        by_node: what is known, by the node's name.
    """

    def __init__(self, entry: KubernetesEntry) -> None:
        self._entry = entry
        self._asked: set[str] = set()
        self._domains: dict[str, str] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)

    @property
    def by_node(self) -> Mapping[str, str]:
        """See the class."""
        return self._domains

    def forget(self) -> None:
        """Ask again for all of them; what is known holds until they answer."""
        self._asked.clear()

    async def learn(self, api: KubernetesApi, slices: Iterable[EndpointSlice]) -> None:
        """Ask for the nodes in the slices that are new. A node that does not tell has the domain that it had, or none:
        the workers are used all the same."""
        label = self._entry.node_label
        if label is None:
            return
        nodes = {endpoint.node_name for each in slices for endpoint in each.endpoints or ()}
        new = {node for node in nodes if node} - self._asked
        self._asked |= new
        try:
            async with asyncio.timeout(_SECONDS):
                await asyncio.gather(*(self._ask(api, node, label) for node in new))
        except TimeoutError:
            self._warn(f"not all answers came within {_SECONDS:g} s")

    async def _ask(self, api: KubernetesApi, node: str, label: str) -> None:
        try:
            async with self._room:
                labels = await api.node_labels(node)
        except SourceLost as lost:
            self._warn(str(lost))
            return
        if label in labels:
            self._domains[node] = labels[label]
        else:
            self._domains.pop(node, None)

    def _warn(self, problem: str) -> None:
        name, label = self._entry.name, self._entry.node_label
        _logger.warning("%s: the label %s of nodes is not known: %s", name, label, problem)
