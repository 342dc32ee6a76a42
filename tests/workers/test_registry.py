import asyncio
import logging

import pytest
from worker_fakes import Clock

from proxy.config.address import parse_worker_address
from proxy.config.discovery.file import FileEntry
from proxy.config.listed_worker import ListedWorker
from proxy.config.minimal_instances import MinimalInstances
from proxy.config.settings import ProxySettings, RouterSettings, ServerSection, Settings
from proxy.errors import NotFound, NotReady
from proxy.fleet.columns import FleetColumns, Grant
from proxy.placement.load_table import LoadTable
from proxy.placement.policy import Needs
from proxy.workers.registry import Registry
from proxy.workers.states import State
from proxy.workers.worker import Role

CONTEXT, GENERATION = Role.CONTEXT, Role.GENERATION


def address(text):
    return parse_worker_address(text if ":" in text else f"{text}:1")


def listed(*names, role=CONTEXT, **options):
    return [ListedWorker(address(name), str(role), **options) for name in names]


def settings(context=(), generation=(), **options):
    router = RouterSettings(options.pop("router", "load_balancing"))
    return Settings(
        context_servers=ServerSection(urls=tuple(map(address, context)), router=router),
        generation_servers=ServerSection(urls=tuple(map(address, generation))),
        proxy=ProxySettings(**options),
    )


@pytest.fixture
async def make_registry():
    made = []

    def make(configuration=None, **options):
        registry = Registry(configuration or settings(), **{"clock": Clock(), **options})
        made.append(registry)
        return registry

    yield make
    for registry in made:
        await registry.close()


def answer(registry, *names):
    for instance in registry.instances:
        if not names or instance.address.host in names:
            instance.health.probe_answered(0.001)


def names(registry, role=None):
    return [each.address.host for each in (registry.workers if role is None else registry.of_role(role))]


async def test_the_configured_workers_start(make_registry):
    registry = make_registry(settings(["a", "b"], ["g"]))
    assert (names(registry, CONTEXT), names(registry, GENERATION)) == (["a", "b"], ["g"])
    assert {worker.state for worker in registry.workers} == {State.STARTING}
    assert not registry.ready
    answer(registry, "a", "g")
    assert registry.ready
    assert [worker.ready for worker in registry.workers] == [True, False, True]


async def test_without_workers_it_keeps_trying(make_registry):
    registry = make_registry()
    assert not registry.ready
    with pytest.raises(NotReady):
        registry.pool(CONTEXT, "m").reserve()
    registry.apply([*listed("a"), *listed("g", role=GENERATION)])
    answer(registry)
    assert registry.ready
    assert registry.pool(CONTEXT, "m").reserve().worker.address.host == "a"


async def test_a_change_touches_nobody_else(make_registry):
    registry = make_registry(settings(["a", "b"]))
    answer(registry)
    kept = registry.workers[1]
    leg = registry.pool(CONTEXT, "m").reserve(exclude={address("a")})
    registry.apply(listed("b", "c"))
    assert names(registry) == ["b", "c"]
    assert registry.workers[0] is kept
    assert (kept.ready, kept.in_flight) == (True, 1)
    leg.release()


async def test_a_worker_that_is_removed_ends_its_legs_first(make_registry):
    table = LoadTable(columns=16)
    registry = make_registry(settings(["a", "b"]), table=table)
    answer(registry)
    pool = registry.pool(CONTEXT, "m")
    legs = [pool.reserve(exclude={address("b")}) for _ in range(2)]
    leaving = legs[0].worker
    registry.apply(listed("b"))
    assert leaving.state is State.DRAINING
    assert names(registry) == ["a", "b"]
    assert {pool.reserve().worker.address.host for _ in range(10)} == {"b"}
    legs[0].release()
    assert leaving.state is State.DRAINING
    legs[1].release()
    assert leaving.state is State.GONE
    assert names(registry) == ["b"]
    assert table.legs_of(leaving.column) == 0


async def test_a_worker_that_comes_back_while_it_drains_goes_on(make_registry):
    registry = make_registry(settings(["a"]))
    answer(registry)
    leg = registry.pool(CONTEXT, "m").reserve()
    registry.apply([])
    registry.apply(listed("a"))
    worker = registry.workers[0]
    assert worker is leg.worker
    assert (worker.state, worker.in_flight) == (State.READY, 1)
    leg.release()
    assert worker.ready


async def test_a_worker_that_is_listed_as_draining(make_registry):
    registry = make_registry(settings(["a", "b"]))
    answer(registry)
    draining = listed("a", draining=True) + listed("b")
    registry.apply(draining)
    registry.apply(draining)
    assert [worker.state for worker in registry.workers] == [State.DRAINING, State.READY]
    registry.apply(listed("b"))
    assert names(registry) == ["b"]
    registry.apply(listed("a", "b"))
    assert [worker.state for worker in registry.workers] == [State.READY, State.STARTING]


async def test_a_mixed_worker_is_one_process(make_registry):
    registry = make_registry(settings(["a", "b"], ["b", "a"]))
    assert len(registry.instances) == 2
    assert not registry.ready
    answer(registry, "a")
    assert not registry.ready  # one worker cannot run both legs
    answer(registry)
    assert registry.ready
    context, generation = registry.of_role(CONTEXT)[0], registry.of_role(GENERATION)[1]
    assert context.address == generation.address
    assert (context.health, context.pool, context.column) == (
        generation.health,
        generation.pool,
        generation.column,
    )
    leg = registry.pool(CONTEXT, "m").reserve()
    with registry.pool(GENERATION, "m").reserve(exclude={leg.worker.address}) as other:
        assert other.address != leg.worker.address
    for _ in range(3):
        context.health.probe_failed(timed_out=False)
    assert (context.state, generation.state) == (State.EJECTED, State.EJECTED)
    registry.apply([*listed("b"), *listed("a", "b", role=GENERATION)])
    leg.release()
    assert len(registry.instances) == 2
    assert generation.state is State.EJECTED


async def test_the_load_of_both_roles_counts(make_registry):
    registry = make_registry(settings(["a", "b"], ["a", "c"]))
    answer(registry)
    for _ in range(5):
        registry.pool(GENERATION, "m").reserve(exclude={address("c")})
    for _ in range(5):
        assert registry.pool(CONTEXT, "m").reserve().worker.address.host == "b"


# Models


async def test_each_model_has_its_pools(make_registry):
    registry = make_registry()
    registry.apply(
        [
            *listed("a1", "a2", model="a"),
            *listed("b1", model="b"),
            *listed("g1", role=GENERATION, model="a"),
            *listed("g2", role=GENERATION, model="b"),
        ]
    )
    answer(registry, "a1", "a2", "g1", "b1")
    assert {registry.pool(CONTEXT, "a").reserve().worker.address.host for _ in range(4)} == {"a1", "a2"}
    assert registry.pool(CONTEXT, "b").reserve().worker.address.host == "b1"
    assert registry.pool(CONTEXT, "a").policy is not registry.pool(CONTEXT, "b").policy
    assert registry.pool(GENERATION, "a").policy is not registry.pool(CONTEXT, "a").policy
    with pytest.raises(NotFound) as caught:
        registry.pool(CONTEXT, "c")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert registry.ready  # for model a


async def test_one_model_goes_by_any_name(make_registry):
    registry = make_registry()
    registry.apply(listed("a", model="llama"))
    assert registry.pool(CONTEXT, "gpt") is registry.pool(CONTEXT, "llama")


async def test_workers_without_a_model_take_the_others(make_registry):
    registry = make_registry()
    registry.apply([*listed("a", model="llama"), *listed("b")])
    assert [worker.address.host for worker in registry.pool(CONTEXT, "gpt").workers] == ["b"]
    registry.apply(listed("a", model="llama"))
    assert [worker.address.host for worker in registry.pool(CONTEXT, "gpt").workers] == ["a"]


async def test_a_model_whose_workers_have_gone_is_forgotten(make_registry):
    registry = make_registry()
    for number in range(50):
        registry.apply(listed("a", model=f"model-{number}"))
    assert len(registry.pools) == 3


async def test_what_the_policies_need(make_registry):
    assert make_registry().needs is Needs.NOTHING
    assert make_registry(settings(router="prefix")).needs == Needs.PREFIX


# Labels and versions


async def test_labels_may_change(make_registry):
    registry = make_registry()
    registry.apply(listed("a", labels={"domain": "x", "zone": "1"}))
    worker = registry.workers[0]
    assert (worker.domain, worker.labels["zone"]) == ("x", "1")
    registry.apply(listed("a", labels={"domain": "y"}))
    assert registry.workers == [worker]
    assert worker.domain == "y"


async def test_the_common_version(make_registry):
    registry = make_registry(settings(["a", "b"]))
    assert registry.version is None
    answer(registry)
    for instance in registry.instances:
        instance.version = "1.3.0"
    assert registry.version == "1.3.0"
    registry.instances[0].version = "1.2.0"
    assert registry.version is None


async def settled(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


# Sources


async def test_the_lists_of_several_sources_are_united(make_registry):
    registry = make_registry(settings(["a"]))
    registry.apply(listed("b", labels={"zone": "1"}), source="one")
    registry.apply(listed("b", "c", labels={"zone": "2", "rack": "r"}), source="two")
    assert names(registry) == ["a", "b", "c"]
    assert [worker.labels for worker in registry.workers] == [
        {},
        {"zone": "1", "rack": "r"},
        {"zone": "2", "rack": "r"},
    ]
    registry.apply([])
    assert names(registry) == ["b", "c"]
    registry.apply([], source="two")
    assert names(registry) == ["b"]
    assert registry.workers[0].labels == {"zone": "1"}


async def test_one_source_is_enough_to_drain_a_worker(make_registry):
    registry = make_registry(settings(["a"]))
    answer(registry)
    registry.apply(listed("a", draining=True), source="one")
    assert registry.workers[0].state is State.DRAINING
    registry.apply([], source="one")
    assert registry.workers[0].ready


async def test_sources_rank_as_they_are_configured(make_registry):
    sources = tuple(FileEntry(name=name, path="/x") for name in ("one", "two"))
    registry = make_registry(settings(discovery=sources))
    registry.apply(listed("a", labels={"domain": "second"}), source="two")
    registry.apply(listed("a", labels={"domain": "first"}), source="one")
    assert registry.workers[0].domain == "first"


@pytest.mark.parametrize(
    ("minimal", "ready"), [((2, 1), True), ((3, 1), False), ((2, 2), False), ((0, 0), True)]
)
async def test_minimal_instances(make_registry, minimal, ready):
    registry = make_registry(
        settings(["a", "b", "c"], ["g", "h"], minimal_instances=MinimalInstances(*minimal))
    )
    answer(registry, "a", "b", "g")
    assert registry.ready is ready


async def test_minimal_instances_do_not_replace_what_requests_need(make_registry):
    registry = make_registry(settings(["a"], ["g"], minimal_instances=MinimalInstances(0, 0)))
    answer(registry, "g")
    assert not registry.ready


async def test_more_workers_than_columns(make_registry, caplog):
    registry = make_registry(table=LoadTable(columns=16))
    registry.apply(listed(*(f"w{number}" for number in range(20))))
    assert len(registry.workers) == 16
    assert "more than 16 workers" in caplog.text
    registry.apply(listed(*(f"w{number}" for number in range(10, 20))))
    assert len(registry.workers) == 10


async def test_an_address_that_changes_its_role_keeps_its_column_and_connections(make_registry):
    columns = FleetColumns({"a:1": Grant(3, 1, 7)}, lambda address, serial: pytest.fail("given back"))
    registry = make_registry(table=LoadTable(columns=16), columns=columns)
    registry.apply(listed("a"))
    (instance,) = registry.instances
    registry.apply(listed("a", role=GENERATION))
    assert registry.instances == [instance]
    assert (names(registry, CONTEXT), names(registry, GENERATION)) == ([], ["a"])
    registry.apply(listed("a", role=GENERATION, model="m"))
    assert registry.instances == [instance]
    assert [(worker.model, worker.in_flight) for worker in registry.workers] == [("m", 0)]


async def test_what_is_missing_at_start_is_said(make_registry, caplog, monkeypatch):
    monkeypatch.setattr("proxy.workers.monitor.HealthMonitor.start", lambda self: None)
    registry = make_registry(settings(["a"], server_start_timeout=0.001))
    with caplog.at_level(logging.ERROR):
        registry.start()
        await settled(lambda: "still trying; workers missing: context a:1" in caplog.text)
