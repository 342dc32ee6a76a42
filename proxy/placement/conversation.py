"""`router.type: conversation`: all requests of a conversation on one worker, which holds their prefix."""

from __future__ import annotations

from proxy.placement.bounded_hash import BoundedHash
from proxy.placement.policy import Needs, Placement


class Conversation(BoundedHash):
    """By the conversation that the client names, else by the first messages, which stay the same in every turn."""

    needs = Needs.ID | Needs.PREFIX_WITHOUT_ID

    def key(self, placement: Placement) -> int | None:
        """See `BoundedHash`."""
        return placement.id_key if placement.id_key is not None else placement.prefix_key
