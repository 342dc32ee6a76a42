"""Asks a source of workers once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.source import Source, SourceLost


class Found(msgspec.Struct, frozen=True):
    """What a source tells.

    Attributes:
        source: its name.
        workers: None when it does not tell them.
        problem: why it does not; empty when it does.
    """

    source: str
    workers: Sequence[ListedWorker] | None
    problem: str = ""


async def ask_once(source: Source, seconds: float) -> Found:
    """The first list of a source, or why there is none within so many seconds."""
    try:
        async with asyncio.timeout(seconds), aclosing(source.changes()) as changes:
            async for listed in changes:
                return Found(source.name, listed)
    except SourceLost as lost:
        return Found(source.name, None, str(lost))
    except TimeoutError:
        return Found(source.name, None, f"no answer within {seconds:g} s")
    return Found(source.name, None, "it tells no list")
