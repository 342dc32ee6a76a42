"""The keys below a prefix of etcd, kept up to date through restarts, compactions and members that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from time import monotonic

from proxy.workers.discovery.etcd_client import Change, EtcdAccess, EtcdClient, EtcdError, WatchLost

# A silent watch says nothing about the connection: the member is asked as often.
_CHECK_SECONDS = 2.0


class EtcdKeys:
    """See the module's docstring.

    Args:
        access: to etcd.
        prefix: where the keys begin.
        keep_seconds: keys that are not there any more after an outage are kept for this time, so that an etcd that
            lost its data does not take all workers away before they have registered again.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        access: EtcdAccess,
        prefix: str,
        *,
        keep_seconds: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._access = access
        self._prefix = prefix
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._member = 0
        self._values: dict[str, str] = {}
        # Keys that an outage may have swallowed, with their values and when they are given up.
        self._missing: dict[str, tuple[str, float]] = {}

    @property
    def values(self) -> dict[str, str]:
        """What is known at present, by key."""
        return {**{key: value for key, (value, _) in self._missing.items()}, **self._values}

    async def follow(self) -> AsyncGenerator[dict[str, str], None]:
        """All keys and values at first, again each time that something changes, and every few seconds without a change,
        when they are known to be right. May be called anew after an error.

        Raises:
            EtcdError: the member that was followed is lost; the next call begins with another one.
        """
        client = EtcdClient(self._access, first=self._member)
        try:
            while True:
                try:
                    async with aclosing(self._read_and_watch(client)) as following:
                        async for values in following:
                            yield values
                except WatchLost as lost:
                    if not lost.compacted:
                        raise
        finally:
            self._member = client.member
            await client.close()

    async def _read_and_watch(self, client: EtcdClient) -> AsyncGenerator[dict[str, str], None]:
        snapshot = await client.read(self._prefix)
        self._adopt(snapshot.values)
        yield self.values
        behind = False
        async with (
            aclosing(client.watch(self._prefix, snapshot.revision + 1)) as changes,
            aclosing(_or_silence(changes, _CHECK_SECONDS)) as pieces,
        ):
            async for piece in pieces:
                if piece is not None:
                    self._apply(piece)
                else:
                    behind = await self._check(client, behind)
                self._give_up()
                yield self.values

    async def _check(self, client: EtcdClient, behind: bool) -> bool:
        """Ask the member whose watch is silent.

        Args:
            client: at this member.
            behind: the result of the last check.

        Returns:
            Whether there are changes that the watch has not told. They may be on their way.

        Raises:
            EtcdError: it does not answer, or the watch stays silent about changes.
        """
        endpoint = client.endpoint
        snapshot = await client.read(self._prefix)
        if client.endpoint != endpoint:
            raise WatchLost(f"{endpoint} does not answer")
        if snapshot.values == self._values:
            return False
        if behind:
            raise WatchLost(f"{endpoint} has stopped telling changes")
        return True

    def _adopt(self, values: Mapping[str, str]) -> None:
        deadline = self._clock() + self._keep_seconds
        for key, value in self._values.items():
            self._missing.setdefault(key, (value, deadline))
        for key in values:
            self._missing.pop(key, None)
        self._values = dict(values)

    def _apply(self, changes: list[Change]) -> None:
        for change in changes:
            self._missing.pop(change.key, None)
            if change.value is None:
                self._values.pop(change.key, None)
            else:
                self._values[change.key] = change.value

    def _give_up(self) -> None:
        now = self._clock()
        for key in [key for key, (_, deadline) in self._missing.items() if deadline <= now]:
            del self._missing[key]


async def _or_silence(
    changes: AsyncGenerator[list[Change], None], seconds: float
) -> AsyncGenerator[list[Change] | None, None]:
    """What a generator yields, and None each time that it has been silent for so long."""
    upcoming = asyncio.ensure_future(anext(changes))
    try:
        while True:
            done, _ = await asyncio.wait({upcoming}, timeout=seconds)
            if not done:
                yield None
                continue
            piece = upcoming.result()
            upcoming = asyncio.ensure_future(anext(changes))
            yield piece
    finally:
        upcoming.cancel()
        with suppress(asyncio.CancelledError, EtcdError):
            await upcoming
