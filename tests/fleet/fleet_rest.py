"""Workers that get no work any more."""

import asyncio

from proxy.sim.worker import SimWorker


async def rests(worker: SimWorker) -> None:
    """Wait until a worker gets no context legs any more: every process has heard that it is not listed."""
    async with asyncio.timeout(20):
        while True:
            before = worker.legs["context"]
            await asyncio.sleep(0.3)
            if worker.legs["context"] == before:
                return
