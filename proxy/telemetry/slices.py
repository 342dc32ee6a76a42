"""Long work inside the event loop, done in slices so that requests do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import perf_counter
from typing import TypeVar

_Step = TypeVar("_Step")

SECONDS = 0.001
"""About the longest time for which the loop is kept from other work: a slice ends with the step that exceeds it."""


async def in_slices(steps: Iterable[_Step]) -> list[_Step]:
    """Do all steps, each of which should take far less than `SECONDS`; returns what they gave."""
    done: list[_Step] = []
    until = perf_counter() + SECONDS
    for step in steps:
        done.append(step)
        if perf_counter() >= until:
            await asyncio.sleep(0)
            until = perf_counter() + SECONDS
    return done
