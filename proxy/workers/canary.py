"""End-to-end canary: now and then a tiny request through a context and a generation worker.

A worker can answer `/health` with 200 while each of its requests fails. Off by default, since it costs a little of
every worker's time; passive ejection finds such a worker too, at the cost of a few real requests.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from proxy.workers.states import State
from proxy.workers.worker import Worker

Canary = Callable[[Worker, Worker], Awaitable[bool]]
"""Sends the request through a context and a generation worker; whether the answer was good. Raises nothing but
cancellation. The lifecycle supplies it."""

_logger = logging.getLogger("proxy.workers")


def pairs(context: Sequence[Worker], generation: Sequence[Worker], turn: int) -> list[tuple[Worker, Worker]]:
    """Every worker in at least one pair, with another partner in each turn. Pure.

    So a worker that is sound fails only with broken partners, while a broken one fails every time. The same mixed
    worker is never paired with itself.
    """
    if not context or not generation:
        return []
    size = max(len(context), len(generation))
    found = [
        (context[index % len(context)], generation[(index + turn) % len(generation)]) for index in range(size)
    ]
    return [(first, second) for first, second in found if first.address != second.address]


class CanaryMonitor:
    """Runs the canary every `interval` seconds, from `start` to `close`.

    Args:
        interval: seconds.
        canary: see `Canary`.
        groups: tells the context and generation workers of each model.
    """

    def __init__(
        self,
        *,
        interval: float,
        canary: Canary,
        groups: Callable[[], Sequence[tuple[Sequence[Worker], Sequence[Worker]]]],
    ) -> None:
        self._interval = interval
        self._canary = canary
        self._groups = groups
        self._turn = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def round(self) -> None:
        """Send one request through every ready worker and tell their health the results."""
        self._turn += 1
        chosen = [
            pair
            for context, generation in self._groups()
            for pair in pairs(_ready(context), _ready(generation), self._turn)
        ]
        results = await asyncio.gather(*(self._canary(*pair) for pair in chosen))
        passed = {
            worker.address for pair, good in zip(chosen, results, strict=True) if good for worker in pair
        }
        workers = {worker.address: worker for pair in chosen for worker in pair}
        for address, worker in workers.items():
            if address in passed:
                worker.health.canary_passed()
            else:
                _logger.warning("the canary failed on %s worker %s", worker.role, address.text)
                worker.health.canary_failed()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval * random.uniform(0.9, 1.1))  # noqa: S311 - jitter
            await self.round()


def _ready(workers: Sequence[Worker]) -> list[Worker]:
    return [worker for worker in workers if worker.state is State.READY]
