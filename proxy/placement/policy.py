"""What a placement policy is, and the table of policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from proxy.workers.worker import Worker


class Policy(Protocol):
    """Chooses one of the workers that are available. Keeps no state about requests: counts live with the workers."""

    def choose(self, available: Sequence[Worker]) -> Worker:
        """Choose one; `available` is never empty."""
        ...
