"""The guard of a request's legs, with a clock that the tests move."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_loop import FakeLoop

from proxy.errors import Aborted, ClientGone, LegTimeout, ProxyError, QueueTimeout
from proxy.lifecycle.watch import TIMEOUT_CODES, Watch


class Client:
    def __init__(self) -> None:
        self.gone = False
        self.callback: Callable[[], None] | None = None

    def watch(self, callback: Callable[[], None]) -> None:
        self.callback = callback

    def leave(self) -> None:
        self.gone = True
        assert self.callback is not None
        self.callback()


class Target:
    def __init__(self) -> None:
        self.aborted: list[tuple[int, ProxyError]] = []

    def abort(self, exchange: int, error: ProxyError) -> None:
        self.aborted.append((exchange, error))

    @property
    def error(self) -> ProxyError | None:
        return self.aborted[0][1] if self.aborted else None


class World:
    def __init__(self, *, stall: float = 0.0, total: float = 0.0) -> None:
        self.loop = FakeLoop()
        self.client = Client()
        self.target = Target()
        self.source: Any = SimpleNamespace(reading_paused=False, paused_since=0.0, last_read=self.loop.time())
        loop: Any = self.loop
        client: Any = self.client
        self.watch = Watch(client, loop, stall_timeout=stall, total=total)

    def read(self) -> None:
        self.source.last_read = self.loop.time()

    def pause(self) -> None:
        self.source.reading_paused = True
        self.source.paused_since = self.loop.time()

    def resume(self) -> None:
        self.source.reading_paused = False
        self.read()


@pytest.mark.parametrize("phase", sorted(set(TIMEOUT_CODES) - {"queue"}))
async def test_a_phase_ends_after_its_time(phase: str) -> None:
    world = World()
    world.watch.guard(world.target, 7, phase, 10)
    world.loop.advance(9.9)
    assert world.target.aborted == []
    world.loop.advance(0.1)
    ((exchange, error),) = world.target.aborted
    assert exchange == 7
    assert isinstance(error, LegTimeout)
    assert (error.status, error.code) == (504, TIMEOUT_CODES[phase])
    assert world.loop.armed == []


async def test_waiting_in_the_queue_has_an_error_of_its_own() -> None:
    world = World()
    world.watch.guard(world.target, 0, "queue", 10)
    world.loop.advance(10)
    assert isinstance(world.target.error, QueueTimeout)


async def test_no_time_no_timer() -> None:
    world = World()
    world.watch.guard(world.target, 1, "context", 0)
    world.watch.guard_relay(world.source, 0)
    assert world.loop.armed == []


async def test_a_released_leg_is_not_ended() -> None:
    world = World()
    world.watch.guard(world.target, 1, "context", 10)
    world.watch.release()
    world.loop.advance(20)
    assert world.target.aborted == []
    assert world.loop.armed == []


async def test_a_later_deadline_costs_no_new_timer() -> None:
    """The usual request: each phase moves the deadline, the timer that was armed first sets itself again."""
    world = World()
    world.watch.guard(world.target, 1, "context", 10)
    (timer,) = [timer for _, _, timer in world.loop._timers]
    for _ in range(5):
        world.loop.advance(1)
        world.watch.release()
        world.watch.guard(world.target, 2, "first byte", 10)
    assert [timer for _, _, timer in world.loop._timers] == [timer]
    world.loop.advance(5)  # the first one fires and looks again
    assert world.loop.armed == [5]
    world.loop.advance(5)
    assert world.target.aborted[0][0] == 2


async def test_an_earlier_deadline_replaces_the_timer() -> None:
    world = World()
    world.watch.guard(world.target, 1, "context", 100)
    world.watch.release()
    world.watch.guard(world.target, 2, "first byte", 5)
    assert world.loop.armed == [5]
    world.loop.advance(5)
    assert world.target.aborted[0][0] == 2


async def test_close_disarms() -> None:
    world = World(total=50)
    world.watch.guard(world.target, 1, "context", 100)
    world.watch.close()
    assert world.loop.armed == []
    world.watch.close()


async def test_a_client_that_leaves_ends_the_leg_at_once() -> None:
    world = World()
    world.watch.guard(world.target, 3, "context", 10)
    world.client.leave()
    ((exchange, error),) = world.target.aborted
    assert exchange == 3
    assert isinstance(error, ClientGone)
    world.client.leave()
    assert len(world.target.aborted) == 1


async def test_between_two_legs_the_next_one_is_not_begun() -> None:
    world = World()
    world.watch.check()
    world.watch.guard(world.target, 1, "context", 10)
    world.watch.release()
    world.client.leave()
    assert world.target.aborted == []
    with pytest.raises(ClientGone):
        world.watch.check()


async def test_an_abort_between_two_legs_is_remembered() -> None:
    world = World()
    world.watch.abort(Aborted("by an operator"))
    with pytest.raises(Aborted):
        world.watch.check()


async def test_a_client_that_had_left_before() -> None:
    world = World()
    world.client.gone = True
    with pytest.raises(ClientGone):
        world.watch.check()


async def test_the_total_runs_through_all_phases() -> None:
    world = World(total=25)
    for exchange in (1, 2):
        world.watch.check()
        world.watch.guard(world.target, exchange, "context", 20)
        world.loop.advance(10)
        world.watch.release()
    world.watch.guard(world.target, 3, "first byte", 20)
    world.loop.advance(4.9)
    assert world.target.aborted == []
    world.loop.advance(0.1)
    ((exchange, error),) = world.target.aborted
    assert (exchange, error.code) == (3, "deadline_exceeded")
    with pytest.raises(LegTimeout) as caught:
        world.watch.check()
    assert caught.value.code == "deadline_exceeded"


async def test_the_total_ends_a_phase_without_a_limit_of_its_own() -> None:
    world = World(total=25)
    world.watch.guard(world.target, 1, "context", 0)
    world.loop.advance(25)
    assert world.target.error is not None
    assert world.target.error.code == "deadline_exceeded"


# Relays


async def test_silence_between_two_pieces() -> None:
    world = World(stall=180)
    world.watch.guard(world.target, 1, "first byte", 5)
    world.loop.advance(4)
    world.read()
    world.watch.guard_relay(world.source, 10)
    for _ in range(10):
        world.loop.advance(9)
        world.read()
    assert world.target.aborted == []
    world.loop.advance(10)
    assert world.target.error is not None
    assert world.target.error.code == "idle_timeout"


async def test_pieces_arm_no_timers() -> None:
    world = World(stall=180)
    world.watch.guard(world.target, 1, "first byte", 0)
    world.watch.guard_relay(world.source, 10)
    before = next(world.loop._order)
    for _ in range(1000):
        world.loop.advance(0.01)
        world.read()
    assert next(world.loop._order) - before <= 3


async def test_a_paused_worker_is_not_to_blame_for_silence() -> None:
    world = World(stall=0)
    world.watch.guard(world.target, 1, "first byte", 0)
    world.watch.guard_relay(world.source, 10)
    world.loop.advance(5)
    world.pause()
    world.loop.advance(1000)
    assert world.target.aborted == []
    world.resume()
    world.loop.advance(9)
    assert world.target.aborted == []
    world.loop.advance(11)
    assert world.target.error is not None
    assert world.target.error.code == "idle_timeout"


@pytest.mark.parametrize("idle", [0, 5, 60, 1000])
async def test_a_client_that_stops_reading(idle: float) -> None:
    world = World(stall=60)
    world.watch.guard(world.target, 1, "first byte", 0)
    world.watch.guard_relay(world.source, idle)
    world.loop.advance(4)
    world.pause()
    world.loop.advance(59)
    assert world.target.aborted == []
    world.loop.advance(61 + min(idle, 5))
    assert isinstance(world.target.error, ClientGone)
    assert world.target.error.code == "client_stalled"


async def test_a_client_that_reads_now_and_then_goes_on() -> None:
    world = World(stall=60)
    world.watch.guard(world.target, 1, "first byte", 0)
    world.watch.guard_relay(world.source, 100)
    for _ in range(20):
        world.pause()
        world.loop.advance(50)
        world.resume()
        world.loop.advance(5)
    assert world.target.aborted == []


async def test_the_total_ends_a_relay_too() -> None:
    world = World(stall=60, total=100)
    world.watch.guard(world.target, 1, "first byte", 50)
    world.watch.guard_relay(world.source, 10)
    for _ in range(11):
        world.loop.advance(9)
        world.read()
    assert world.target.aborted == []
    world.loop.advance(1)
    assert world.target.error is not None
    assert world.target.error.code == "deadline_exceeded"


async def test_the_end_of_a_relay_disarms() -> None:
    world = World(stall=60)
    world.watch.guard(world.target, 1, "first byte", 50)
    world.watch.guard_relay(world.source, 10)
    world.watch.release()
    world.loop.advance(1000)
    assert world.target.aborted == []
    assert world.loop.armed == []


class TestWaited:
    """The time that passes while something is guarded is time spent waiting for others."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        made = SimpleNamespace(now=1000.0)
        monkeypatch.setattr("proxy.lifecycle.watch.perf_counter", lambda: made.now)
        return made

    async def test_the_sum_of_what_was_guarded(self, clock: SimpleNamespace) -> None:
        watch = World().watch
        for waits, works in ((2, 3), (5, 7)):
            watch.guard(Target(), 0, "context", 0)
            clock.now += waits
            watch.release()
            clock.now += works
        watch.close()
        assert watch.waited == 7

    async def test_a_relay_goes_on_with_the_leg(self, clock: SimpleNamespace) -> None:
        world = World()
        world.watch.guard(world.target, 0, "first byte", 0)
        clock.now += 2
        world.watch.guard_relay(world.source, 0)
        assert world.watch.waited == 2
        clock.now += 3
        world.watch.release()
        world.watch.release()
        assert world.watch.waited == 5
