"""Keeps each worker's readiness up to date by probing its `/health`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random

from proxy.workers.probe import ProbeResult, control_client, probe_worker
from proxy.workers.worker import Worker

# One lost probe is no reason to take a worker out; as many in a row are.
_FAILURES_TO_LEAVE = 3

_logger = logging.getLogger("proxy.workers")


class HealthMonitor:
    """Probes all workers, each in its own task, from `start` to `close`.

    Args:
        workers: those to watch; a worker in both roles appears twice and is probed once.
        interval, timeout: seconds between probes and for one probe.
    """

    def __init__(self, workers: list[Worker], *, interval: float, timeout: float) -> None:
        self._interval = interval
        self._timeout = timeout
        self._tasks: list[asyncio.Task[None]] = []
        self._by_address: dict[object, list[Worker]] = {}
        for worker in workers:
            self._by_address.setdefault(worker.address, []).append(worker)

    def start(self) -> None:
        """Begin to probe."""
        self._tasks = [asyncio.create_task(self._watch(workers)) for workers in self._by_address.values()]

    async def close(self) -> None:
        """Stop probing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, workers: list[Worker]) -> None:
        address = workers[0].address
        failures = 0
        async with contextlib.AsyncExitStack() as stack:
            client = control_client(address)
            stack.push_async_callback(client.aclose)
            while True:
                # Version and model are asked for again whenever the worker comes back: it may be another one.
                result = await probe_worker(client, address, self._timeout, identify=not workers[0].ready)
                failures = 0 if result.healthy else failures + 1
                for worker in workers:
                    _apply(worker, result, failures)
                # Probes of many proxies and workers must not fall into step.
                await asyncio.sleep(self._interval * random.uniform(0.9, 1.1))  # noqa: S311 - jitter


def _apply(worker: Worker, result: ProbeResult, failures: int) -> None:
    if result.healthy and not worker.ready:
        worker.version = result.version
        worker.model = result.models[0] if result.models else None
        worker.ready = True
        _logger.info("%s worker %s is ready (version %s)", worker.role, worker.address.text, worker.version)
    elif worker.ready and failures >= _FAILURES_TO_LEAVE:
        worker.ready = False
        _logger.warning(
            "%s worker %s is %s: %s", worker.role, worker.address.text, result.state, result.detail
        )
