"""Workers that drain by an operator's order."""

from test_registry import CONTEXT, address, answer, listed, make_registry, settings

from proxy.workers.states import State

__all__ = ["make_registry"]  # a fixture


async def test_a_held_worker_ends_its_legs_and_gets_no_others(make_registry):
    registry = make_registry(settings(["a", "b"]))
    answer(registry)
    pool = registry.pool(CONTEXT, "m")
    leg = pool.reserve(exclude={address("b")})
    registry.hold([address("a")])
    assert leg.worker.state is State.DRAINING
    assert {pool.reserve().worker.address.host for _ in range(10)} == {"b"}
    leg.release()
    assert leg.worker.state is State.DRAINING
    registry.hold([])
    assert leg.worker.state is State.READY
    assert pool.reserve(exclude={address("b")}).worker is leg.worker


async def test_an_order_outlives_worker_lists(make_registry):
    registry = make_registry(settings(["a"]))
    answer(registry)
    registry.hold([address("a"), address("new")])
    registry.apply([*listed("a"), *listed("new"), *listed("b")])
    assert [worker.state for worker in registry.workers] == [State.DRAINING, State.DRAINING, State.STARTING]
    registry.apply(listed("b"))
    assert [worker.address.host for worker in registry.workers] == ["b"]
    registry.apply([*listed("a"), *listed("b")])
    assert registry.workers[1].state is State.DRAINING
    assert registry.held == {address("a"), address("new")}


async def test_resuming_does_not_override_a_list_that_says_draining(make_registry):
    registry = make_registry(settings(["a"]))
    answer(registry)
    registry.apply(listed("a", draining=True))
    registry.hold([address("a")])
    registry.hold([])
    assert registry.workers[0].state is State.DRAINING
