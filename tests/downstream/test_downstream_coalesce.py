"""Pieces that wait for each other while the loop is busy."""

import asyncio
from types import SimpleNamespace

import pytest

from proxy.downstream.coalesce import CoalescingSink, LoopMeter
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


async def make(busy, seconds=0.02):
    transport = Transport()
    protocol = SimpleNamespace(
        transport=transport, loop=asyncio.get_running_loop(), flow=SimpleNamespace(write_paused=False)
    )
    cycle = SimpleNamespace(
        protocol=protocol, disconnected=False, response_complete=False, keep_alive=True, finish=lambda: None
    )
    meter = Meter(busy)
    sink = CoalescingSink(cycle, SimpleNamespace(), b"HEAD", chunked=True, seconds=seconds, meter=meter)
    return sink, transport, meter


A, B, C = chunk(b"data: a\n\n"), chunk(b"data: b\n\n"), chunk(b"data: c\n\n")


async def test_an_idle_loop_writes_each_piece_at_once():
    sink, transport, _ = await make(busy=False)
    for piece in (A, B, C):
        sink.write(piece)
    assert transport.writes == [b"HEAD" + A, B, C]


async def test_a_busy_loop_writes_the_first_piece_at_once_and_joins_the_others():
    sink, transport, _ = await make(busy=True)
    for piece in (A, B, C):
        sink.write(piece)
    assert transport.writes == [b"HEAD" + A]
    await asyncio.sleep(0.05)
    assert transport.writes == [b"HEAD" + A, B + C]
    assert sink.bytes_relayed == len(A + B + C)


async def test_a_piece_never_overtakes_one_that_waits():
    sink, transport, meter = await make(busy=True)
    sink.write(A)
    sink.write(B)
    meter.state = False
    sink.write(C)
    await asyncio.sleep(0.05)
    assert b"".join(transport.writes) == b"HEAD" + A + B + C


async def test_the_end_brings_what_waits_along():
    sink, transport, _ = await make(busy=True)
    sink.write(A)
    sink.write(B)
    sink.end(C)
    assert transport.writes == [b"HEAD" + A, B + C + LAST_CHUNK]
    await asyncio.sleep(0.05)
    assert len(transport.writes) == 2


async def test_an_error_leaves_nothing_waiting():
    sink, transport, _ = await make(busy=True)
    sink.write(A)
    sink.write(B)
    sink.broken(BrokenAnswer("broken"))
    assert transport.writes == [b"HEAD" + A, B]
    assert sink.between_events
    sink.close(b"data: {}\n\n")
    assert transport.writes[-1] == chunk(b"data: {}\n\n") + LAST_CHUNK


async def test_much_does_not_wait():
    sink, transport, _ = await make(busy=True, seconds=60)
    sink.write(A)
    large = chunk(b"x" * 20_000)
    sink.write(large)
    assert transport.writes == [b"HEAD" + A, large]


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
