"""Keeps each worker's health up to date by probing its `/health`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from proxy.upstream.access import WorkerAccess
from proxy.workers.capabilities import LONGEST_SCHEMA, SCHEMA_PATH
from proxy.workers.instance import Instance
from proxy.workers.ping import Finding, Ping, Pinger

# A worker that answers legs need not be asked every second whether it lives: this many times less often.
_SELDOM = 5
# As many workers are asked at once when they are listed; with more their first probes are spread over an interval.
_AT_ONCE = 64
# Probes between two times that a worker is asked what it is.
_LONGEST_PAUSE = 64

_logger = logging.getLogger("proxy.workers")


class Acquaintance:
    """When a worker is asked what it is: at once, and again if it was too busy to tell, after 2, 4, 8 ... probes."""

    __slots__ = ("_complete", "_pause", "_probes")

    def __init__(self) -> None:
        self._complete = False
        self._pause = 1
        self._probes = 1

    @property
    def begun(self) -> bool:
        """It has been asked before."""
        return self._pause > 1

    def is_due(self) -> bool:
        """To be called after each probe that found it healthy."""
        if self._complete:
            return False
        self._probes -= 1
        return not self._probes

    def made(self, *, complete: bool) -> None:
        """It has been asked; whether it answered everything."""
        self._complete = complete
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._probes = self._pause


class HealthMonitor:
    """Probes all instances in parallel, each in its own task.

    Args:
        interval: seconds between two probes of a worker.
        timeout: seconds for one probe.
        clock: seconds, monotonic; the one of the instances' health.
        access: TLS and key for the workers; plain when None.
    """

    def __init__(
        self,
        *,
        interval: float,
        timeout: float,
        clock: Callable[[], float],
        access: WorkerAccess | None = None,
    ) -> None:
        self._access = access
        self._interval = interval
        self._timeout = timeout
        self._clock = clock
        self._running = False
        self._tasks: dict[Instance, asyncio.Task[None]] = {}
        self._waiting: list[Instance] = []
        self._unasked: set[Instance] = set()

    @property
    def asked_all(self) -> bool:
        """Whether the first probe of every instance has ended, well or not."""
        return not self._unasked

    def start(self) -> None:
        """Begin to probe."""
        self._running = True
        waiting, self._waiting = self._waiting, []
        for instance in waiting:
            self.watch(instance)

    def watch(self, instance: Instance) -> None:
        """Probe this instance too, once started."""
        self._unasked.add(instance)
        if not self._running:
            self._waiting.append(instance)
            return
        delay = 0.0 if len(self._tasks) < _AT_ONCE else random.uniform(0, self._interval)  # noqa: S311
        self._tasks[instance] = asyncio.create_task(self._probe(instance, delay))

    def forget(self, instance: Instance) -> None:
        """Probe it no more."""
        self._unasked.discard(instance)
        task = self._tasks.pop(instance, None)
        if task is not None:
            task.cancel()
        elif instance in self._waiting:
            self._waiting.remove(instance)

    async def close(self) -> None:
        """Stop probing."""
        self._running = False
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _probe(self, instance: Instance, delay: float) -> None:
        health = instance.health
        pinger = Pinger(instance.address, timeout=self._timeout, access=self._access)
        acquaintance = Acquaintance()
        last = ""
        try:
            while True:
                # Probes of many proxies and workers must not fall into step.
                await asyncio.sleep(delay)
                ping = await pinger.ping(fresh=health.suspicious)
                if ping.finding is not Finding.HEALTHY:
                    acquaintance = Acquaintance()  # who comes back may be another one
                elif acquaintance.is_due():
                    complete = await self._identify(instance, pinger, again=acquaintance.begun)
                    acquaintance.made(complete=complete)
                if ping.detail != last:
                    last = ping.detail
                    if last:
                        _logger.info("probe of worker %s: %s", instance.address.text, last)
                _apply(instance, ping)
                self._unasked.discard(instance)
                delay = self._interval * random.uniform(0.9, 1.1) * self._factor(instance)  # noqa: S311
        finally:
            await pinger.close()

    async def _identify(self, instance: Instance, pinger: Pinger, *, again: bool) -> bool:
        """Ask what the worker is; whether all was answered. What it does not tell in time stays unknown and does not
        keep it from serving; asked again, it takes nothing back by silence."""
        before = pinger.unanswered
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                version, models = await pinger.identify()
                max_batch_size = await pinger.batch_size()
                if again:
                    await pinger.document(SCHEMA_PATH, LONGEST_SCHEMA)
                    if pinger.unanswered != before:
                        return False
                instance.version, instance.models = version, models
                instance.max_batch_size = max_batch_size
                await instance.capabilities.look_up(pinger, instance.version)
                return pinger.unanswered == before
        return False

    def _factor(self, instance: Instance) -> int:
        health = instance.health
        fresh = not health.suspicious and self._clock() - health.last_answer < self._interval
        return _SELDOM if fresh else 1


def _apply(instance: Instance, ping: Ping) -> None:
    health = instance.health
    if ping.finding is Finding.HEALTHY:
        health.probe_answered(ping.seconds)
    elif ping.finding is Finding.LOADING:
        health.probe_found_loading()
    else:
        health.probe_failed(timed_out=ping.finding is Finding.SILENT)
