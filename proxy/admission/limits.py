"""The numbers that admission compares with; per fleet, not per process."""

from __future__ import annotations

from typing import Literal

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Counts of requests; 0 = no limit, except for `max_queued`.

    Attributes:
        max_inflight: requests between their admission and their end.
        max_inflight_per_key: requests of one API key, those that wait included.
        max_queued: requests that wait; 0 = nobody waits, who cannot go on is refused at once.
        max_queued_bytes: their bodies together, bytes.
        queue_order: who goes first: who came first, or who has the higher priority.
        pause_mode: what happens to new requests during a pause.
    """

    max_inflight: int = 0
    max_inflight_per_key: int = 0
    max_queued: int = 4096
    max_queued_bytes: int = 0
    queue_order: Literal["fifo", "priority"] = "fifo"
    pause_mode: Literal["queue", "refuse"] = "queue"
