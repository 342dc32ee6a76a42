"""`minimal_instances`: how many workers of each role there must be before the proxy is ready."""

from __future__ import annotations

import msgspec

from proxy.config.scalars import Count


class MinimalInstances(msgspec.Struct, frozen=True):
    """The keys and defaults are those of `disagg_cluster.minimal_instances` of `trtllm-serve disaggregated`."""

    context_servers: Count = 1
    generation_servers: Count = 1

    def reached(self, context: int, generation: int) -> bool:
        """Whether so many workers are enough."""
        return context >= self.context_servers and generation >= self.generation_servers
