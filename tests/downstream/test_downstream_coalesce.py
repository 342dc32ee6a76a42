"""Pieces that wait for each other in the worker's socket while the loop is busy."""

import asyncio
from types import SimpleNamespace

import pytest

from proxy.downstream.coalesce import CoalescingSink, Gatherer, LoopMeter
from proxy.errors import BrokenAnswer
from proxy.wire.chunks import LAST_CHUNK, chunk


class Transport:
    def __init__(self):
        self.writes = []

    def is_closing(self):
        return False

    def write(self, data):
        self.writes.append(bytes(data))


class Meter:
    def __init__(self, busy):
        self.state = busy

    def busy(self):
        return self.state


class Source:
    """Counts like the worker connection: `held` is what it does now."""

    def __init__(self):
        self.held = False
        self.holds = 0

    def hold(self):
        self.held = True
        self.holds += 1

    def release(self):
        self.held = False


class World:
    def __init__(self, busy, seconds=0.02):
        self.loop = asyncio.get_running_loop()
        self.transport = Transport()
        protocol = SimpleNamespace(
            transport=self.transport, loop=self.loop, flow=SimpleNamespace(write_paused=False)
        )
        cycle = SimpleNamespace(
            protocol=protocol,
            disconnected=False,
            response_complete=False,
            keep_alive=True,
            finish=lambda: None,
        )
        self.meter = Meter(busy)
        self.gatherer = Gatherer(seconds, self.meter)
        self.source, self.sink = self.stream(cycle)
        self.other, self.other_sink = self.stream(cycle)

    def stream(self, cycle):
        source = Source()
        return source, CoalescingSink(cycle, source, b"HEAD", chunked=True, gatherer=self.gatherer)


A, B, C = chunk(b"data: a\n\n"), chunk(b"data: b\n\n"), chunk(b"data: c\n\n")


async def test_an_idle_loop_leaves_the_socket_open():
    world = World(busy=False)
    for piece in (A, B, C):
        world.sink.write(piece)
    assert world.transport.writes == [b"HEAD" + A, B, C]
    assert world.source.holds == 0


async def test_a_busy_loop_writes_what_it_has_and_reads_again_after_the_time():
    world = World(busy=True)
    world.sink.write(A)
    assert world.transport.writes == [b"HEAD" + A], "the first piece never waits"
    assert world.source.held
    world.sink.write(B)  # came in the same read
    assert world.transport.writes == [b"HEAD" + A, B]
    assert world.source.holds == 1
    await asyncio.sleep(0.05)
    assert not world.source.held
    world.sink.write(C)
    assert world.source.held
    assert world.sink.bytes_relayed == len(A + B + C)


async def test_a_loop_that_has_become_idle_holds_no_more():
    world = World(busy=True)
    world.sink.write(A)
    world.meter.state = False
    await asyncio.sleep(0.05)
    world.sink.write(B)
    assert world.source.holds == 1
    assert not world.source.held


async def test_streams_are_read_together():
    world = World(busy=True, seconds=0.5)
    world.sink.write(A)
    await asyncio.sleep(0.05)
    world.other_sink.write(A)
    assert world.source.held
    assert world.other.held
    while world.source.held:
        await asyncio.sleep(0.001)
    assert not world.other.held, "waits for the rest of the time only"


@pytest.mark.parametrize("end", ["end", "broken", "client_gone"])
async def test_after_the_end_the_connection_is_not_touched(end):
    """It may serve another exchange by then, which may hold it itself."""
    world = World(busy=True)
    world.sink.write(A)
    if end == "end":
        world.sink.end(C)
        assert world.transport.writes == [b"HEAD" + A, C + LAST_CHUNK]
    elif end == "broken":
        world.sink.broken(BrokenAnswer("broken"))
        assert world.sink.between_events
        world.sink.close(b"data: {}\n\n")
        assert world.transport.writes[-1] == chunk(b"data: {}\n\n") + LAST_CHUNK
    else:
        world.sink.client_gone()
    await asyncio.sleep(0.05)
    assert world.source.held, "not released by a timer that came too late"


@pytest.mark.parametrize("busy", [True, False])
def test_the_meter_tells_a_busy_thread_from_an_idle_one(monkeypatch, busy):
    wall, cpu = [0.0], [0.0]
    monkeypatch.setattr("proxy.downstream.coalesce.perf_counter", lambda: wall[0])
    monkeypatch.setattr("proxy.downstream.coalesce.thread_time", lambda: cpu[0])
    meter = LoopMeter()
    assert not meter.busy()
    wall[0] += 0.1
    cpu[0] += 0.09 if busy else 0.01
    assert meter.busy() is busy
    wall[0] += 0.01
    cpu[0] += 0.0 if busy else 0.01
    assert meter.busy() is busy, "no new sample yet"


def test_the_meter_is_not_told_idle_by_what_the_waiting_saves(monkeypatch):
    wall, cpu = [0.0], [0.0]
    monkeypatch.setattr("proxy.downstream.coalesce.perf_counter", lambda: wall[0])
    monkeypatch.setattr("proxy.downstream.coalesce.thread_time", lambda: cpu[0])
    meter = LoopMeter()
    for share, busy in ((0.09, False), (0.15, True), (0.05, True), (0.01, False), (0.05, False)):
        wall[0] += 0.1
        cpu[0] += 0.1 * share
        assert meter.busy() is busy, share
