import asyncio
import time

import pytest

from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.gauges import Gauges
from proxy.telemetry.names import LOOP_LAG, Metric
from proxy.telemetry.shared import SharedMetrics

LOAD = Metric("load", "", ("worker",), kind="gauge")


@pytest.fixture
def memory() -> SharedMetrics:
    memory = SharedMetrics.private()
    memory.rows[0].open()
    memory.rows[0].announce(1)
    return memory


def test_refresh_forgets_what_is_not_told_any_more(memory: SharedMetrics) -> None:
    samples = {("a",): 1.0, ("b",): 2.0}
    gauges = Gauges(memory.rows[0], [(LOAD, samples.items)])
    view = FleetView(memory)
    assert view.gauges(LOAD) == {}
    gauges.refresh()
    assert view.gauges(LOAD) == samples
    del samples["a",]
    samples["c",] = 3.0
    gauges.refresh()
    assert view.gauges(LOAD) == {("b",): 2.0, ("c",): 3.0}


async def test_the_lag_of_the_event_loop_is_measured(
    memory: SharedMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.telemetry.gauges._TICK", 0.01)
    gauges = Gauges(memory.rows[0], [])
    view = FleetView(memory)
    gauges.start()
    assert view.gauges(LOOP_LAG) == {("0",): 0.0}
    await asyncio.sleep(0.015)
    time.sleep(0.1)
    async with asyncio.timeout(5):
        while view.gauges(LOOP_LAG)["0",] < 0.05:
            await asyncio.sleep(0.001)
    gauges.close()
    gauges.close()
