"""All workers of a pool are exchanged at once."""

from test_registry import CONTEXT, GENERATION, answer, listed, make_registry, names, settings, settled
from worker_fakes import Clock

from proxy.workers.states import State

__all__ = ["make_registry"]  # a fixture


async def test_the_old_ones_go_on_until_a_new_one_answers(make_registry):
    registry = make_registry(settings(["a", "b"]))
    answer(registry)
    registry.apply(listed("c", "d"))
    assert names(registry) == ["a", "b", "c", "d"]
    assert registry.pool(CONTEXT, "m").reserve().worker.address.host in "ab"
    answer(registry, "c")
    registry._take_over()
    states = {worker.address.host: worker.state for worker in registry.workers}
    assert {name: state for name, state in states.items() if state is State.READY} == {"c": State.READY}
    assert registry.pool(CONTEXT, "m").reserve().worker.address.host == "c"


async def test_it_is_looked_again_by_itself(make_registry, monkeypatch):
    monkeypatch.setattr("proxy.workers.registry.LOOK_SECONDS", 0.0)
    registry = make_registry(settings(["a"]))
    answer(registry)
    registry.apply(listed("b"))
    answer(registry, "b")
    await settled(lambda: names(registry) == ["b"])


async def test_a_reprieve_ends(make_registry):
    clock = Clock()
    registry = make_registry(settings(["a"]), clock=clock)
    answer(registry)
    registry.apply(listed("b"))
    clock.advance(4.0)
    registry.apply(listed("b"))
    assert names(registry) == ["a", "b"]
    clock.advance(1.0)
    registry.apply(listed("b"))
    assert names(registry) == ["b"]


async def test_who_is_not_replaced_goes_at_once(make_registry):
    registry = make_registry(settings(["a", "b"], ["g"]))
    answer(registry)
    # Others of the pool answer; nobody comes; those who come are of the other role or drain.
    registry.apply([*listed("b", "c"), *listed("g", role=GENERATION)])
    assert names(registry, CONTEXT) == ["b", "c"]
    coming = [*listed("x", "g", role=GENERATION), *listed("y", draining=True)]
    registry.apply(coming)
    assert names(registry, CONTEXT) == ["y"]
    registry.apply([])
    assert names(registry) == []


async def test_who_does_not_answer_is_not_spared(make_registry):
    registry = make_registry(settings(["a"]))
    registry.apply(listed("b"))
    assert names(registry) == ["b"]


async def test_one_that_is_listed_again_stays(make_registry):
    registry = make_registry(settings(["a"]))
    answer(registry)
    kept = registry.workers[0]
    registry.apply(listed("b"))
    registry.apply(listed("a", "b"))
    answer(registry)
    registry._take_over()
    assert registry.workers[0] is kept
    assert [worker.state for worker in registry.workers] == [State.READY, State.READY]
