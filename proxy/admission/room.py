"""Whether one more request fits under a limit that several processes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Other(NamedTuple):
    """Another process: places it uses, and whether requests wait there."""

    used: int
    waiting: bool


def has_room(limit: int, own: int, others: Sequence[Other] = ()) -> bool:
    """Whether this process may use one more place.

    Places that become free are first seen by the process that freed them; it would take them for ever under load.
    So while requests wait elsewhere, what the processes without a queue leave over is shared equally. At least one
    of those that wait is below its share as long as there is a place.

    Args:
        limit: places of all processes together, 0 = no limit.
        own: places used here.
        others: the other processes.
    """
    if not limit:
        return True
    if not others:
        return own < limit
    rivals = elsewhere = used_by_rivals = 0
    for used, waiting in others:
        elsewhere += used
        if waiting:
            rivals += 1
            used_by_rivals += used
    if own + elsewhere >= limit:
        return False
    if not rivals:
        return True
    shared = limit - (elsewhere - used_by_rivals)
    return own < -(-shared // (rivals + 1))
