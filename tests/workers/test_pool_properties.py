"""Whatever happens to workers and legs, at the end nothing is counted any more."""

import asyncio
from types import SimpleNamespace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worker_fakes import Clock

from proxy.config.address import parse_worker_address
from proxy.config.listed_worker import ListedWorker
from proxy.config.settings import RouterSettings, ServerSection, Settings
from proxy.errors import NotReady, WorkersBusy
from proxy.placement.columns import LocalColumns
from proxy.placement.load_table import LoadTable
from proxy.placement.policy import Placement
from proxy.placement.table import POLICIES
from proxy.workers.outcome import LegOutcome
from proxy.workers.registry import Registry
from proxy.workers.worker import Role

ADDRESSES = [parse_worker_address(f"w:{port}") for port in range(1, 6)]
LISTED = [ListedWorker(address, role) for address in ADDRESSES for role in ("context", "generation")]

ACTIONS = st.one_of(
    st.tuples(st.just("reserve"), st.sampled_from(list(Role)), st.integers(0, 3), st.integers(0, 1000)),
    st.tuples(st.just("report"), st.integers(0, 50), st.sampled_from(list(LegOutcome))),
    st.tuples(st.just("release"), st.integers(0, 50)),
    st.tuples(st.just("apply"), st.sets(st.sampled_from(range(len(LISTED))))),
    st.tuples(st.just("drain"), st.sets(st.sampled_from(range(len(LISTED))))),
    st.tuples(st.just("probe"), st.integers(0, 4), st.sampled_from(["answers", "loads", "fails", "silent"])),
    st.tuples(st.just("wait"), st.floats(0.1, 20)),
)


def probe(instance, kind):
    if kind == "answers":
        instance.health.probe_answered(0.001)
    elif kind == "loads":
        instance.health.probe_found_loading()
    else:
        instance.health.probe_failed(timed_out=kind == "silent")


def play(policy, actions):
    router = RouterSettings(policy)
    configuration = Settings(
        context_servers=ServerSection(router=router), generation_servers=ServerSection(router=router)
    )
    clock, table = Clock(), LoadTable(columns=16)
    columns = LocalColumns(16)
    registry = Registry(configuration, table=table, columns=columns, clock=clock)
    registry.apply(LISTED)
    for instance in registry.instances:
        instance.health.probe_answered(0.001)
    open_legs = []
    for action, *arguments in actions:
        if action == "reserve":
            role, key, tokens = arguments
            try:
                reservation = registry.pool(role, "m").reserve(Placement(key, key, tokens))
            except (NotReady, WorkersBusy):
                continue
            assert not reservation.worker.leaving
            open_legs.append(reservation)
        elif action == "report" and open_legs:
            open_legs[arguments[0] % len(open_legs)].report(arguments[1])
        elif action == "release" and open_legs:
            open_legs.pop(arguments[0] % len(open_legs)).release()
        elif action == "apply":
            registry.apply([LISTED[index] for index in arguments[0]])
        elif action == "drain":
            registry.apply(
                [
                    ListedWorker(each.address, each.role, draining=index in arguments[0])
                    for index, each in enumerate(LISTED)
                ]
            )
        elif action == "probe":
            for instance in registry.instances[arguments[0] : arguments[0] + 1]:
                probe(instance, arguments[1])
        elif action == "wait":
            clock.advance(arguments[0])
        assert table.legs().sum() == len(open_legs)
        assert sum(worker.in_flight for worker in registry.workers) == len(open_legs)
    for reservation in open_legs:
        with reservation:
            pass
    assert not table.legs().any()
    assert not table.tokens().any()
    registry.apply([])
    assert registry.workers == registry.instances == []
    assert {columns.acquire(address).number for address in ADDRESSES} == set(range(5))
    return SimpleNamespace(registry=registry)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policy=st.sampled_from(sorted(POLICIES)), actions=st.lists(ACTIONS, max_size=60))
def test_every_count_ends_at_zero(policy, actions):
    async def run():
        await play(policy, actions).registry.close()

    asyncio.run(run())
