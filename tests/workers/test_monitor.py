import asyncio
import time
from typing import Any, cast

import pytest
from test_probe import HEALTHY as ANSWERS
from test_probe import STARTING, Worker, answer, running

from proxy.placement.columns import Column
from proxy.workers.health import Health
from proxy.workers.instance import Instance
from proxy.workers.monitor import HealthMonitor
from proxy.workers.outcome import LegOutcome
from proxy.workers.states import State

# The rest of what is asked of a worker that is new; it need not know any of it.
HEALTHY = {**ANSWERS, "/server_info": answer(404), "/openapi.json": answer(404)}


def instance_at(address):
    def make_health(notify):
        return Health(
            clock=time.monotonic, eject_after=3, eject_seconds=2, slow_start_seconds=0, notify=notify
        )

    return Instance(address, cast(Any, None), Column(0, 1), make_health)


async def settled(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
async def monitor():
    monitor = HealthMonitor(interval=0.02, timeout=30.0, clock=time.monotonic)
    yield monitor
    await monitor.close()


async def test_a_worker_comes_fails_and_comes_back(monitor):
    worker = Worker({"/health": STARTING})
    async with running(worker) as address:
        instance = instance_at(address)
        monitor.watch(instance)
        monitor.start()
        await settled(lambda: len(worker.requests) > 2)
        assert instance.health.condition is State.STARTING
        worker.answers = HEALTHY
        await settled(lambda: instance.health.condition is State.READY)
        assert (instance.version, instance.models) == ("1.3.0rc24", ("llama", "lora"))
        worker.answers = {**HEALTHY, "/health": answer(500)}
        await settled(lambda: instance.health.condition is State.EJECTED)
        worker.answers = {**HEALTHY, "/version": answer(200, '{"version": "2.0"}')}
        await settled(lambda: instance.health.condition is State.READY)
        assert instance.version == "2.0"
        worker.answers = {**HEALTHY, "/health": STARTING}
        await settled(lambda: instance.health.condition is State.STARTING)
        monitor.forget(instance)


def asked(worker, path):
    return sum(request.startswith(b"GET %b " % path.encode()) for request in worker.requests)


async def test_a_worker_that_was_too_busy_to_tell_what_it_is_is_asked_again():
    monitor = HealthMonitor(interval=0.02, timeout=0.2, clock=time.monotonic)
    worker = Worker({name: given for name, given in HEALTHY.items() if name != "/version"})
    async with running(worker) as address:
        instance = instance_at(address)
        monitor.watch(instance)
        monitor.start()
        await settled(lambda: instance.health.condition is State.READY)
        assert instance.version is None
        worker.answers = HEALTHY
        await settled(lambda: instance.version == "1.3.0rc24")
        await monitor.close()


async def test_a_worker_that_falls_silent_takes_nothing_back():
    monitor = HealthMonitor(interval=0.01, timeout=0.05, clock=time.monotonic)
    worker = Worker({name: given for name, given in HEALTHY.items() if name != "/openapi.json"})
    async with running(worker) as address:
        instance = instance_at(address)
        monitor.watch(instance)
        monitor.start()
        await settled(lambda: instance.version == "1.3.0rc24")
        # It closes the connection instead.
        worker.answers = {**dict.fromkeys(HEALTHY, b""), "/health": HEALTHY["/health"]}
        before = asked(worker, "/version")
        await settled(lambda: asked(worker, "/version") > before + 1)
        await monitor.close()
    assert (instance.version, instance.models) == ("1.3.0rc24", ("llama", "lora"))


async def test_a_worker_that_never_tells_is_asked_ever_less_often_and_one_that_has_told_not_at_all():
    monitor = HealthMonitor(interval=0.01, timeout=0.05, clock=time.monotonic)
    silent = Worker({name: given for name, given in HEALTHY.items() if name != "/version"})
    open_ = Worker({**HEALTHY, "/version": answer(404), "/v1/models": answer(404)})
    async with running(silent) as first, running(open_) as second:
        for address in (first, second):
            monitor.watch(instance_at(address))
        monitor.start()
        await settled(lambda: asked(silent, "/health") >= 40 and asked(open_, "/health") >= 40)
        await monitor.close()
    # The first time, and after 2, 4, 8 and 16 probes.
    assert 3 <= asked(silent, "/version") <= 6
    assert asked(open_, "/version") == 1


async def test_workers_are_probed_in_parallel(monitor):
    hanging, sound = Worker({}), Worker(HEALTHY)
    async with running(hanging) as first, running(sound) as second:
        monitor.start()
        instances = [instance_at(first), instance_at(second)]
        for instance in instances:
            monitor.watch(instance)
        await settled(lambda: len(sound.requests) > 5)
        assert len(hanging.requests) <= 1
        await monitor.close()


async def test_a_worker_that_answers_legs_is_asked_less_often():
    monitor = HealthMonitor(interval=0.04, timeout=1.0, clock=time.monotonic)
    busy, idle = Worker(HEALTHY), Worker(HEALTHY)
    async with running(busy) as first, running(idle) as second:
        instances = [instance_at(first), instance_at(second)]
        for instance in instances:
            monitor.watch(instance)
        monitor.start()
        async with asyncio.timeout(10):
            while len(idle.requests) < 25:
                instances[0].health.leg_ended(LegOutcome.OK)
                await asyncio.sleep(0.002)
        assert len(busy.requests) < 15
        await monitor.close()


async def test_forgotten_before_the_start(monitor):
    worker = Worker(HEALTHY)
    async with running(worker) as address:
        instance = instance_at(address)
        monitor.watch(instance)
        monitor.forget(instance)
        monitor.start()
        await asyncio.sleep(0.05)
        assert not worker.requests


async def test_all_have_been_asked_when_each_has_answered_or_failed(monitor):
    hanging, sound = Worker({}), Worker(HEALTHY)
    async with running(hanging) as first, running(sound) as second:
        assert monitor.asked_all
        instances = [instance_at(first), instance_at(second)]
        for instance in instances:
            monitor.watch(instance)
        assert not monitor.asked_all
        monitor.start()
        await settled(lambda: len(sound.requests) > 5)
        assert not monitor.asked_all
        hanging.answers = {"/health": answer(500)}
        monitor.forget(instances[0])
        assert monitor.asked_all
        monitor.watch(instances[0])
        await settled(lambda: monitor.asked_all)
        assert instances[0].health.condition is State.STARTING
