"""Follows one source for the proxy's whole life."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec

from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.source import Source, SourceLost

Take = Callable[[str, Sequence[ListedWorker]], Awaitable[None]]
"""Takes over the whole list of a source, given its name."""

_FIRST_PAUSE = 0.5
# A problem that lasts is told again after this time.
_REMIND = 60.0
_logger = logging.getLogger("proxy.discovery")


class SourceStatus(msgspec.Struct, frozen=True):
    """How a source is.

    Attributes:
        source: its name.
        workers: entries of its last list.
        age_seconds: since the list was last known to be right; since the start if it never was.
        errors: how often it was lost.
        problem: why it is lost now, None when it is not.
    """

    source: str
    workers: int
    age_seconds: float
    errors: int
    problem: str | None


class Follower:
    """Asks again when the source is lost, later each time; the last list stays in force meanwhile.

    Args:
        source: to follow.
        take: gets each list that differs from the one before.
        clock: seconds, monotonic.
        sleep: waits for some seconds.
        jitter: between 0 and 1, so that many proxies do not ask at the same time.
    """

    def __init__(
        self,
        source: Source,
        take: Take,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._source = source
        self._take = take
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._taken: tuple[ListedWorker, ...] | None = None
        self._right_at = clock()
        self._errors = 0
        self._problem: str | None = None
        self._failures = 0
        self._failed_at = 0.0
        self._told_at = 0.0

    @property
    def status(self) -> SourceStatus:
        """At this moment."""
        return SourceStatus(
            self._source.name,
            len(self._taken or ()),
            round(self._clock() - self._right_at, 3),
            self._errors,
            self._problem,
        )

    async def run(self) -> None:
        """Follow until the source ends or this is cancelled."""
        while True:
            try:
                async with aclosing(self._source.changes()) as changes:
                    async for listed in changes:
                        await self._right(tuple(listed))
                return
            except SourceLost as lost:
                self._failed(str(lost))
            except Exception as error:
                _logger.exception("the source %s of workers has failed", self._source.name)
                self._failed(f"{type(error).__name__}: {error}")
            await self._sleep(self._pause())

    async def _right(self, listed: tuple[ListedWorker, ...]) -> None:
        if listed != self._taken:
            await self._take(self._source.name, listed)
            self._taken = listed
            _logger.info("%s tells %d workers", self._source.name, len(listed))
        elif self._problem is not None:
            _logger.info("%s is back and tells the same %d workers", self._source.name, len(listed))
        self._problem = None
        self._right_at = self._clock()

    def _failed(self, problem: str) -> None:
        now = self._clock()
        self._errors += 1
        # One that is right for a moment and fails again is not asked more often for it.
        calm = now - self._failed_at > 2 * self._source.longest_pause
        self._failures = 1 if calm else self._failures + 1
        self._failed_at = now
        if problem != self._problem or now - self._told_at >= _REMIND:
            self._told_at = now
            _logger.error(
                "%s does not tell its workers: %s; its last list (%d workers) stays in force",
                self._source.name,
                problem,
                len(self._taken or ()),
            )
        self._problem = problem

    def _pause(self) -> float:
        longest = self._source.longest_pause
        pause = min(longest, _FIRST_PAUSE * 2.0 ** min(self._failures - 1, 20))
        return pause * (0.5 + self._jitter() / 2)
