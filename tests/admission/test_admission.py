import asyncio

import pytest
from admission_world import FakeTimers, World

from proxy.admission.capacity import Capacity
from proxy.admission.permit import Permit
from proxy.errors import Aborted, ClientGone, KeyLimitReached, Overloaded, Paused


def admitted(future):
    return future.done() and isinstance(future.result(), Permit)


async def test_without_limits_everybody_enters_at_once():
    world = World()
    permits = [world.admission.enter() for _ in range(3)]
    assert world.admission.in_flight == world.admission.in_context == 3
    for permit in permits:
        with permit:
            permit.context_done()
            permit.context_done()
            assert world.admission.in_context < 3
        permit.release()
    world.assert_empty()


async def test_first_come_first_served():
    world = World(max_inflight=1)
    first = world.admission.enter()
    assert world.admission.enter() is None
    (_, one), (_, two) = world.wait(), world.wait()
    assert world.admission.queued == 2
    first.release()
    assert admitted(one)
    assert not two.done()
    # Who comes now does not overtake.
    one.result().release()
    assert admitted(two)
    assert world.admission.enter() is None
    two.result().release()
    world.assert_empty()


async def test_nobody_overtakes_those_who_wait():
    capacity = Capacity(generation=1)
    world = World(capacity=lambda: capacity)
    permit = world.admission.enter()
    _, waiting = world.wait()
    capacity = Capacity(generation=5)  # a worker came back: seen at the next look
    assert world.admission.enter() is None
    world.timers.advance(0.1)
    assert admitted(waiting)
    for each in (permit, waiting.result()):
        each.release()
    world.assert_empty()


async def test_priority_and_then_first_come():
    world = World(max_inflight=1, queue_order="priority")
    running = world.admission.enter()
    futures = [world.wait(priority=priority)[1] for priority in (0.5, 0.9, 0.5, 1.0, 0.0)]
    order = []
    while len(order) < 5:
        running.release()
        found = next(index for index, each in enumerate(futures) if each.done() and index not in order)
        order.append(found)
        running = futures[found].result()
    assert order == [3, 1, 0, 2, 4]
    running.release()
    world.assert_empty()


async def test_priorities_do_not_matter_in_first_come_order():
    world = World(max_inflight=1)
    running = world.admission.enter()
    (_, low), (_, high) = world.wait(priority=0.0), world.wait(priority=1.0)
    running.release()
    assert admitted(low)
    assert not high.done()


@pytest.mark.parametrize(
    ("limits", "sizes", "code"),
    [
        ({"max_queued": 1}, (1, 1), "queue_full"),
        ({"max_queued": 0}, (1,), "queue_full"),
        ({"max_queued_bytes": 10}, (6, 5), "queue_bytes_full"),
    ],
)
async def test_a_full_queue_refuses(limits, sizes, code):
    world = World(max_inflight=1, **limits)
    world.admission.enter()
    *fitting, last = sizes
    for size in fitting:
        world.wait(size=size)
    with pytest.raises(Overloaded) as caught:
        world.wait(size=last)
    assert (caught.value.status, caught.value.code) == (429, code)
    assert (b"retry-after", b"1") in caught.value.headers
    assert world.admission.refused == {code: 1}


async def test_limit_per_key_counts_those_who_wait():
    world = World(max_inflight=2, max_inflight_per_key=2)
    one, _other = world.admission.enter("a"), world.admission.enter("b")
    waiter, _future = world.wait(key="a")
    for refused in (lambda: world.admission.enter("a"), lambda: world.wait(key="a")):
        with pytest.raises(KeyLimitReached) as caught:
            refused()
        assert (caught.value.status, caught.value.code) == (429, "key_limit")
    waiter.abort(0, ClientGone("left"))
    world.wait(key="a")
    world.wait()  # without a key there is no limit per key
    world.wait()
    one.release()


async def test_a_waiter_can_be_aborted():
    world = World(max_inflight=1)
    running = world.admission.enter()
    waiter, future = world.wait(size=7)
    waiter.abort(0, ClientGone("left"))
    with pytest.raises(ClientGone):
        await waiter.permit()
    waiter.abort(0, ClientGone("again"))
    assert future.exception().message == "left"
    running.release()
    world.assert_empty()


async def test_abort_after_the_admission_does_nothing():
    world = World(max_inflight=1)
    running = world.admission.enter()
    waiter, _ = world.wait()
    running.release()
    waiter.abort(0, ClientGone("left"))
    (await waiter.permit()).release()
    world.assert_empty()


@pytest.mark.parametrize("moment", ["waiting", "as it is admitted", "before it is admitted"])
async def test_cancellation_gives_everything_back(moment):
    world = World(max_inflight=1, max_inflight_per_key=5)
    running = world.admission.enter("k")
    waiter, _ = world.wait(key="k", size=3)
    task = asyncio.create_task(waiter.permit())
    await asyncio.sleep(0)
    if moment == "as it is admitted":
        running.release()
        task.cancel()
    elif moment == "before it is admitted":
        task.cancel()
        running.release()  # its future is cancelled, its task has not run
    else:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    running.release()
    world.assert_empty()


async def test_generation_room_is_waited_for_before_prefill():
    world = World(capacity=lambda: Capacity(context=0, generation=1))
    permit = world.admission.enter()
    permit.context_done()
    assert world.admission.enter() is None  # still in the generation phase
    _, waiting = world.wait()
    permit.release()
    assert admitted(waiting)


async def test_context_room_is_free_when_the_context_leg_is_answered():
    world = World(capacity=lambda: Capacity(context=1, generation=0))
    permit = world.admission.enter()
    _, waiting = world.wait()
    assert not waiting.done()
    permit.context_done()
    assert admitted(waiting)
    permit.release()
    waiting.result().release()
    world.assert_empty()


async def test_paused_requests_wait():
    world = World()
    before = world.admission.enter()
    world.admission.pause()
    assert world.admission.paused
    assert world.admission.enter() is None
    _, waiting = world.wait()
    before.release()
    assert world.admission.in_flight == 0
    assert not waiting.done()
    world.admission.resume()
    assert admitted(waiting)
    waiting.result().release()
    world.assert_empty()
    assert world.admission.enter() is not None


@pytest.mark.parametrize("limits", [{"pause_mode": "refuse"}, {"max_queued": 0}])
async def test_paused_requests_are_refused(limits):
    world = World(**limits)
    world.admission.pause()
    assert world.admission.enter() is None
    with pytest.raises(Paused) as caught:
        world.wait()
    assert (caught.value.status, caught.value.code) == (503, "paused")
    assert (b"retry-after", b"1") in caught.value.headers


@pytest.mark.parametrize("by_id", [False, True])
async def test_who_has_just_been_admitted_can_be_aborted(by_id):
    """Its task has not run since."""
    world = World(max_inflight=1)
    first = world.admission.enter()
    errors = []
    _, future = world.wait(request_id="second", abort=errors.append)
    first.release()
    assert future.done()
    if by_id:
        assert world.admission.abort_requests(["second"], lambda: Aborted("enough")) == 1
    else:
        assert world.admission.abort_running(lambda: Aborted("enough")) == 1
    assert [error.code for error in errors] == ["aborted"]
    future.result().release()
    world.assert_empty()


async def test_running_requests_can_be_aborted():
    world = World()
    errors = []
    for _ in range(2):
        world.admission.enter().abort = errors.append
    world.admission.enter()  # not begun yet
    assert world.admission.abort_running(lambda: Aborted("enough")) == 3
    assert [error.code for error in errors] == ["aborted", "aborted"]
    assert errors[0] is not errors[1]


async def test_the_timer_runs_only_while_somebody_waits():
    timers = FakeTimers()
    world = World(max_inflight=1, timers=timers)
    running = world.admission.enter()
    assert timers.armed == 0
    waiter, _ = world.wait()
    assert timers.armed == 1
    timers.advance(0.5)
    assert timers.armed == 1
    waiter.withdraw()
    assert timers.armed == 0
    running.release()
    world.assert_empty()
