"""Scrapes of a fleet with many workers."""

import asyncio
import mmap
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from proxy.telemetry import names
from proxy.telemetry.collector import ProxyCollector
from proxy.telemetry.exposition import Exposition
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.gauges import Gauges, Sample
from proxy.telemetry.series import Counter, Histogram
from proxy.telemetry.shared import SharedMetrics

PROCESSES = 2
WORKERS = [
    (role, f"10.0.{number // 256}.{number % 256}:8000")
    for role in ("context", "generation")
    for number in range(1000)
]
TABLE = (names.REQUESTS, names.WORKER_IN_FLIGHT, names.WORKER_STATE, names.WORKER_LEGS, names.LEG_SECONDS)


class Fleet:
    """Two processes that know 1,000 workers in each role."""

    def __init__(self) -> None:
        memory = SharedMetrics(mmap.mmap(-1, SharedMetrics.size(PROCESSES)), PROCESSES)
        self.gauges = []
        for row in memory.rows:
            row.open()
            row.announce(1)
            legs = Counter(row, names.WORKER_LEGS)
            for worker in WORKERS:
                legs.add(7, (*worker, "ok"))
            Histogram(row, names.LEG_SECONDS).observe(0.5, ("context",))
            self.gauges.append(
                Gauges(row, [(names.WORKER_IN_FLIGHT, self.in_flight), (names.WORKER_STATE, self.states)])
            )
        self.refreshed = 0
        for gauges in self.gauges:
            gauges.refresh()
        self.collector = ProxyCollector(FleetView(memory), lambda: None, TABLE, upstream=True)
        self.exposition = Exposition(self.collector, self.gauges[0])

    def in_flight(self) -> Iterator[Sample]:
        self.refreshed += 1
        for worker in WORKERS:
            yield worker, 1.0

    def states(self) -> Iterator[Sample]:
        for worker in WORKERS:
            yield (*worker, "ready"), 1.0

    def registry(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(self.collector)
        return registry


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet()


async def test_the_text_is_the_librarys(fleet: Fleet) -> None:
    text, content_type = await fleet.exposition.render("")
    assert content_type.startswith("text/plain")
    assert text == generate_latest(fleet.registry())
    text, content_type = await fleet.exposition.render("application/openmetrics-text; version=1.0.0")
    assert content_type.partition(";")[0] == CONTENT_TYPE_LATEST.partition(";")[0]
    assert text == generate_openmetrics(fleet.registry())
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    legs = families["disagg_proxy_worker_legs"].samples
    assert len(legs) == len(WORKERS)
    assert {sample.value for sample in legs} == {14.0}


async def test_a_scrape_does_not_keep_the_event_loop_from_its_requests(fleet: Fleet) -> None:
    slices: list[float] = []

    async def watch() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            slices.append(now - before)
            before = now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await fleet.exposition.render("")
    watching.cancel()
    # CPU time, since the machine may be busy: in one go it would be one slice. (The collector may need 30 ms.)
    assert len(slices) > 20
    assert sorted(slices)[-2] < max(sum(slices) / 8, 0.01)


async def test_scrapes_at_the_same_time_share_what_is_not_older_than_they_are(fleet: Fleet) -> None:
    before = fleet.refreshed
    first = asyncio.create_task(fleet.exposition.render(""))
    await asyncio.sleep(0)
    late = [asyncio.create_task(fleet.exposition.render("")) for _ in range(5)]
    texts = {(await task)[0] for task in (first, *late)}
    assert len(texts) == 1
    assert fleet.refreshed == before + 2


async def test_refreshes_do_not_overlap(fleet: Fleet) -> None:
    """A label set that another refresh has just told is not taken for one that has gone."""
    told = [{(*WORKERS[0], "a"): 1.0}, {(*WORKERS[0], "a"): 1.0, (*WORKERS[1], "a"): 1.0}]
    memory = SharedMetrics.private()
    memory.rows[0].open()
    memory.rows[0].announce(1)

    def many() -> Iterator[Sample]:
        for worker in WORKERS:
            yield (*worker, "many"), 1.0
        yield from told.pop(0).items()

    gauges = Gauges(memory.rows[0], [(names.WORKER_STATE, many)])
    await asyncio.gather(gauges.refresh_in_slices(), gauges.refresh_in_slices())
    found = FleetView(memory).gauges(names.WORKER_STATE)
    assert [labels for labels in found if labels[-1] == "a"] == [(*WORKERS[0], "a"), (*WORKERS[1], "a")]


async def test_a_scrape_that_is_given_up_leaves_nothing_behind() -> None:
    memory = SharedMetrics.private()
    memory.rows[0].open()
    memory.rows[0].announce(1)
    listed = list(WORKERS)

    def states() -> Iterator[Sample]:
        for worker in listed:
            time.sleep(0.0001)
            yield (*worker, "ready"), 1.0

    gauges = Gauges(memory.rows[0], [(names.WORKER_STATE, states)])
    view = FleetView(memory)
    scrape = asyncio.create_task(gauges.refresh_in_slices())
    while not view.gauges(names.WORKER_STATE):
        await asyncio.sleep(0)
    scrape.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scrape
    assert 0 < len(view.gauges(names.WORKER_STATE)) < len(WORKERS)
    listed[:] = WORKERS[-1:]
    await gauges.refresh_in_slices()
    assert list(view.gauges(names.WORKER_STATE)) == [(*WORKERS[-1], "ready")]
