from worker_fakes import Clock

from proxy.config.address import parse_worker_address
from proxy.config.listed_worker import ListedWorker
from proxy.config.settings import RouterSettings, ServerSection, Settings
from proxy.placement.policy import Placement
from proxy.telemetry import names
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.gauges import Gauges
from proxy.telemetry.shared import SharedMetrics
from proxy.telemetry.worker_metrics import worker_metrics
from proxy.workers.outcome import LegOutcome
from proxy.workers.registry import Registry
from proxy.workers.worker import Role

WORKERS = [ListedWorker(parse_worker_address(f"{name}:1"), "context") for name in "ab"]


async def test_what_is_told_of_workers_and_placement():
    configuration = Settings(context_servers=ServerSection(router=RouterSettings("conversation")))
    clock = Clock()
    registry = Registry(configuration, clock=clock)
    memory = SharedMetrics.private()
    memory.rows[0].open()
    memory.rows[0].announce(1)
    gauges = Gauges(memory.rows[0], worker_metrics(registry))
    view = FleetView(memory)
    registry.apply(WORKERS)
    registry.instances[0].health.probe_answered(0.25)
    pool = registry.pool(Role.CONTEXT, "m")
    for _ in range(3):
        pool.reserve(Placement(7)).report(LegOutcome.RESET)
    gauges.refresh()
    assert view.gauges(names.WORKER_STATE) == {
        ("context", "a:1", "ejected"): 1,
        ("context", "b:1", "starting"): 1,
    }
    assert view.gauges(names.WORKER_BREAKER) == {("a:1", "open"): 1, ("b:1", "closed"): 1}
    assert view.gauges(names.WORKER_PROBE_SECONDS) == {("a:1",): 0.25, ("b:1",): 0.0}
    assert view.counters(names.WORKER_EJECTIONS)["a:1", "reset"] == 1
    assert view.counters(names.PLACEMENTS)["context", "a:1"] == 3
    assert view.counters(names.AFFINITY)["context", "hit"] == 3
    registry.instances[1].health.probe_answered(0.1)
    pool.reserve().report(LegOutcome.BUSY)
    clock.advance(2)
    gauges.refresh()
    assert view.gauges(names.WORKER_STATE)["context", "b:1", "ready"] == 1
    assert ("context", "b:1", "starting") not in view.gauges(names.WORKER_STATE)
    assert view.gauges(names.WORKER_BREAKER) == {("a:1", "half_open"): 1, ("b:1", "closed"): 1}
    assert view.counters(names.WORKER_BUSY)["b:1",] == 1
    assert view.counters(names.AFFINITY)["context", "miss"] == 1
    await registry.close()


async def test_counts_never_fall_when_a_worker_is_listed_again():
    registry = Registry(Settings(), clock=Clock())
    memory = SharedMetrics.private()
    memory.rows[0].open()
    memory.rows[0].announce(1)
    gauges = Gauges(memory.rows[0], worker_metrics(registry))
    view = FleetView(memory)
    for total in (5, 10, 15):
        registry.apply(WORKERS[:1])
        registry.instances[0].health.probe_answered(0.1)
        for _ in range(5):
            registry.pool(Role.CONTEXT, "m").reserve().release()
        gauges.refresh()
        gauges.refresh()
        registry.apply([])
        gauges.refresh()
        assert view.counters(names.PLACEMENTS)["context", "a:1"] == total
    await registry.close()
