import asyncio

import pytest
from worker_fakes import Pool

from proxy.workers.canary import CanaryMonitor, pairs
from proxy.workers.states import State
from proxy.workers.worker import Role


def roles(context, generation):
    return Pool(context), Pool(generation, role=Role.GENERATION, first_port=100)


@pytest.mark.parametrize(("context", "generation"), [(1, 1), (2, 5), (5, 2), (3, 3)])
def test_everybody_is_in_a_pair_and_partners_change(context, generation):
    first, second = roles(context, generation)
    partners = set()
    for turn in range(generation):
        found = pairs(first.workers, second.workers, turn)
        assert {pair[0] for pair in found} == set(first.workers)
        assert {pair[1] for pair in found} == set(second.workers)
        partners |= {pair[1] for pair in found if pair[0] is first.workers[0]}
    assert len(partners) == generation


def test_nobody_is_paired_with_itself_or_with_nobody():
    mixed = Pool(2)
    assert all(a is not b for a, b in pairs(mixed.workers, mixed.workers, 0))
    assert pairs(mixed.workers, [], 1) == pairs([], mixed.workers, 1) == []


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize(("context", "generation"), [(2, 2), (3, 4), (4, 2)])
async def test_a_broken_worker_is_ejected_and_no_other(role, context, generation):
    fakes = roles(context, generation)
    broken = fakes[role].workers[1]

    async def canary(*pair):
        await asyncio.sleep(0)
        return broken not in pair

    monitor = CanaryMonitor(
        interval=1.0, canary=canary, groups=lambda: [(fakes[0].workers, fakes[1].workers)]
    )
    for _ in range(12):
        await monitor.round()
    ejected = [worker for each in fakes for worker in each.workers if worker.state is State.EJECTED]
    assert ejected == [broken]
    assert broken.health.ejections == {"canary": 1}


async def test_rounds_repeat():
    fakes = roles(1, 1)
    sent = []

    async def canary(*pair):
        sent.append(pair)
        return True

    monitor = CanaryMonitor(
        interval=0.001, canary=canary, groups=lambda: [(fakes[0].workers, fakes[1].workers)]
    )
    monitor.start()
    async with asyncio.timeout(5):
        while len(sent) < 3:
            await asyncio.sleep(0.001)
    await monitor.close()
