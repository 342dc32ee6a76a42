"""`router.type: prefix`: requests that begin alike on one worker. Clients need not cooperate."""

from __future__ import annotations

from proxy.placement.bounded_hash import BoundedHash
from proxy.placement.policy import Needs, Placement


class Prefix(BoundedHash):
    """By the first messages alone, whatever conversation the client names."""

    needs = Needs.PREFIX

    def key(self, placement: Placement) -> int | None:
        """See `BoundedHash`."""
        return placement.prefix_key
