"""`router.type: consistent_hash`: by the key that the client sends, and by nothing else."""

from __future__ import annotations

from proxy.placement.bounded_hash import BoundedHash
from proxy.placement.policy import Needs, Placement


class ConsistentHash(BoundedHash):
    """As `conversation`, but the messages are never looked at: without a key the least loaded worker is chosen."""

    needs = Needs.ID

    def key(self, placement: Placement) -> int | None:
        """See `BoundedHash`."""
        return placement.id_key
