"""One leg: which connection it takes, and that none is lost when it is not used."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_pool import FakeConnections, settle

from proxy.errors import ClientGone, ConnectFailed, ConnectionBroken, LegTimeout
from proxy.lifecycle.leg import Leg
from proxy.lifecycle.watch import Watch

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Client:
    gone = False
    callback: Callable[[], None]

    def watch(self, callback: Callable[[], None]) -> None:
        self.callback = callback

    def leave(self) -> None:
        self.gone = True
        self.callback()


class World:
    def __init__(self, **options: Any) -> None:
        self.pool = FakeConnections(**options)
        self.client: Any = Client()
        loop: Any = self.pool.loop
        self.watch = Watch(self.client, loop, stall_timeout=0)
        self.worker: Any = SimpleNamespace(
            pool=self.pool, request_head=lambda target: b"POST " + target + b" HTTP/1.1\r\n"
        )

    def leg(self, seconds: float = 10) -> Leg:
        head = self.worker.request_head(b"/t?q")
        return Leg(self.worker, head, b"x-a: 1\r\n", self.watch, phase="context", seconds=seconds)

    def start(self, *, fresh: bool = False) -> tuple[Leg, asyncio.Task[Any]]:
        leg = self.leg()
        return leg, asyncio.get_running_loop().create_task(leg.collect((b"{", memoryview(b"}")), fresh=fresh))


async def test_a_whole_leg() -> None:
    world = World()
    leg, task = world.start()
    await settle()
    assert leg.sent
    (transport,) = world.pool.transports
    assert transport.written == b"POST /t?q HTTP/1.1\r\nx-a: 1\r\ncontent-length: 2\r\n\r\n{}"
    assert world.pool.loop.armed == [10]
    transport.receive(ANSWER)
    assert (await task).body == b"{}"
    world.pool.loop.advance(10)  # nothing is guarded any more
    await settle()
    assert world.pool.counts == (0, 0)  # the idle connection has aged


async def test_an_idle_connection_comes_first_unless_a_fresh_one_is_needed() -> None:
    world = World()
    for number, fresh in ((1, False), (1, False), (2, True)):
        _, task = world.start(fresh=fresh)
        await settle()
        assert len(world.pool.transports) == number
        world.pool.transports[-1].receive(ANSWER)
        await task
    assert world.pool.counts == (2, 2)


async def test_in_two_steps() -> None:
    world = World()
    leg = world.leg()
    task = asyncio.create_task(leg.head((b"{}",)))
    await settle()
    world.pool.transports[0].receive(ANSWER[:-2])
    assert (await task).status == 200
    rest = asyncio.create_task(leg.rest())
    await asyncio.sleep(0)
    world.pool.transports[0].receive(b"{}")
    assert (await rest).body == b"{}"
    assert world.pool.counts == (1, 1)


async def test_the_guard_goes_on_between_the_steps() -> None:
    world = World()
    leg = world.leg()
    task = asyncio.create_task(leg.head((b"{}",)))
    await settle()
    world.pool.transports[0].receive(ANSWER[:-2])
    await task
    world.pool.loop.advance(10)
    with pytest.raises(LegTimeout):
        await leg.rest()
    await settle()
    assert world.pool.counts == (0, 0)


async def test_a_client_that_left_before_costs_no_connection() -> None:
    world = World()
    _, task = world.start()
    await settle()
    world.pool.transports[0].receive(ANSWER)
    await task
    world.client.leave()
    leg, task = world.start()
    with pytest.raises(ClientGone):
        await task
    assert not leg.sent
    assert world.pool.counts == (1, 1)


@pytest.mark.parametrize("how", ["leaves", "cancelled"])
async def test_while_connecting(how: str) -> None:
    world = World()
    gate = asyncio.get_running_loop().create_future()
    world.pool.gates = [gate]
    leg, task = world.start()
    await settle()
    if how == "leaves":
        world.client.leave()
    else:
        task.cancel()
    with pytest.raises(ClientGone if how == "leaves" else asyncio.CancelledError):
        await task
    gate.set_result(None)
    await settle()
    assert not leg.sent
    assert world.pool.counts == (1, 1)  # somebody else may use it


@pytest.mark.parametrize("how", ["leaves", "cancelled"])
async def test_just_as_the_connection_has_come(how: str) -> None:
    world = World()
    _, task = world.start()
    while not world.pool.open_connections:
        await asyncio.sleep(0)
    if how == "leaves":
        world.client.leave()
    else:
        task.cancel()
    with pytest.raises(ClientGone if how == "leaves" else asyncio.CancelledError):
        await task
    await settle()
    assert world.pool.open_connections == world.pool.idle_connections


async def test_a_failed_connect() -> None:
    world = World()
    world.pool.errors = [ConnectionRefusedError()]
    leg, task = world.start()
    with pytest.raises(ConnectFailed):
        await task
    assert not leg.sent
    world.client.leave()  # nothing is guarded
    await settle()


async def test_a_broken_leg_releases_the_watch() -> None:
    world = World()
    leg = world.leg()
    for step in (leg.collect, leg.head):
        task = asyncio.create_task(step((b"{}",)))
        await settle()
        world.pool.transports[-1].lose()
        with pytest.raises(ConnectionBroken):
            await task
        assert world.watch._target is None
    assert world.pool.counts == (0, 0)
