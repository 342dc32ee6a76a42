"""Legs per worker: a worker that has as many as it should gets no more while another has room."""

import pytest
from running_proxy import chat, eventually, running_proxy

from proxy.sim import Speed
from proxy.workers.worker import Role


@pytest.mark.parametrize("limit", [2, "auto"])
async def test_the_limit_holds_for_each_worker(limit):
    """Round robin alone would give the third leg to a worker that still runs two."""
    async with running_proxy(
        cluster={"context": 1, "generation": 2, "speed": Speed(max_batch=2)},
        max_inflight_per_generation_worker=limit,
    ) as proxy:
        pool = proxy.service.registry.pool(Role.GENERATION, "sim")
        workers = pool.workers
        await eventually(lambda: all(worker.instance.max_batch_size == 2 for worker in workers))
        proxy.hold("generation")
        writers = []
        for count in range(1, 4):
            writers.append((await proxy.open(chat()))[1])
            await eventually(lambda count=count: proxy.legs("generation") == count)
        # The worker that has one leg less gets the next one, whoever's turn it is.
        busier = max(workers, key=lambda worker: worker.in_flight)
        pool.policy._next = workers.index(busier)
        writers.append((await proxy.open(chat()))[1])
        await eventually(lambda: proxy.legs("generation") == 4)
        assert [worker.in_flight for worker in workers] == [2, 2]
        for writer in writers:
            writer.close()
        await eventually(lambda: proxy.service.admission.in_flight == 0)
