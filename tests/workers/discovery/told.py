"""What a source of workers tells."""

from contextlib import aclosing
from typing import Any

from proxy.workers.discovery.source import Source, SourceLost


async def told_by(source: Source, number: int, part: str) -> list[Any]:
    """The next lists, of each worker this part of its address; a problem, in words, ends them."""
    told: list[Any] = []
    try:
        async with aclosing(source.changes()) as changes:
            async for listed in changes:
                told.append([getattr(worker.address, part) for worker in listed])
                if len(told) == number:
                    return told
    except SourceLost as lost:
        told.append(str(lost))
    return told
