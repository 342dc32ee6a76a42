"""Against an API server that lists and watches over real HTTP."""

import asyncio
import ssl
import time
from contextlib import aclosing, asynccontextmanager

import pytest
from certificates import Authority, needs_openssl
from fake_kubernetes import FakeKubernetes, endpoint, endpoint_slice, write_credentials
from loop_lag import LoopLag
from worker_fakes import Clock

from proxy.config.discovery.kubernetes import KubernetesEntry
from proxy.workers.discovery import kubernetes_api
from proxy.workers.discovery.follower import Follower
from proxy.workers.discovery.kubernetes import KubernetesSource
from proxy.workers.discovery.source import SourceLost


@pytest.fixture
async def api():
    api = await FakeKubernetes().start()
    yield api
    await api.stop()


class Following:
    """A follower, what it took last, and how it is."""

    def __init__(self, source):
        self.workers = None
        self.follower = Follower(source, self.take, jitter=lambda: 0.0)

    async def take(self, _source, workers):
        self.workers = [worker.address.host + ("!" if worker.draining else "") for worker in workers]

    @property
    def status(self):
        return self.follower.status

    async def until(self, *workers):
        await until(lambda: self.workers == list(workers))


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def source_of(api, clock=time.monotonic, **fields):
    entry = {"role": "context", "service": "ctx", "namespace": "prod", "api": api.url, **fields}
    return KubernetesSource(KubernetesEntry(name="k", **entry), clock=clock, environ={})


@asynccontextmanager
async def following(api, **fields):
    following = Following(source_of(api, **fields))
    task = asyncio.ensure_future(following.follower.run())
    try:
        yield following
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_workers_come_drain_and_go(api):
    api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2", ready=False)))
    async with following(api) as seen:
        await seen.until("10.0.0.1")
        api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2")))
        await seen.until("10.0.0.1", "10.0.0.2")
        api.put(endpoint_slice("s2", endpoint("c", "10.0.0.3")))
        await seen.until("10.0.0.1", "10.0.0.2", "10.0.0.3")
        ends = endpoint("a", "10.0.0.1", ready=False, serving=True, terminating=True)
        api.put(endpoint_slice("s1", ends, endpoint("b", "10.0.0.2")))
        await seen.until("10.0.0.1!", "10.0.0.2", "10.0.0.3")
        api.put(endpoint_slice("s1", endpoint("b", "10.0.0.2")))
        api.delete("s2")
        await seen.until("10.0.0.2")
        api.delete("s1")
        await seen.until()
        assert (api.lists, api.watches) == (1, 1)
        assert seen.status.errors == 0


async def test_other_services_are_not_asked_for(api):
    api.put(endpoint_slice("other", endpoint("x", "10.9.9.9"), service="gen"))
    api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1")))
    async with following(api) as seen:
        await seen.until("10.0.0.1")
        api.put(endpoint_slice("other", endpoint("x", "10.9.9.8"), service="gen"))
        api.put(endpoint_slice("s1", endpoint("a", "10.0.0.4")))
        await seen.until("10.0.0.4")
    assert {query["labelSelector"] for query in api.queries} == {"kubernetes.io/service-name=ctx"}


async def test_a_watch_that_ends_in_order_is_taken_up_where_it_ended(api):
    api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1")))
    async with following(api, watch=1.0) as seen:
        await seen.until("10.0.0.1")
        await until(lambda: api.watches == 1)
        api.bookmark()
        await until(lambda: api.watches == 2)
        assert api.queries[-1]["resourceVersion"] == "102"
        assert api.queries[-1]["allowWatchBookmarks"] == "true"
        assert api.queries[-1]["timeoutSeconds"] == "1"
        api.put(endpoint_slice("s1", endpoint("a", "10.0.0.5")))
        await seen.until("10.0.0.5")
        assert (api.lists, seen.status.errors) == (1, 0)


async def test_bookmarks_keep_the_list_young(api):
    async with following(api) as seen:
        await seen.until()
        await until(lambda: api.watchers)
        await until(lambda: seen.status.age_seconds > 0.2)
        api.bookmark()
        await until(lambda: seen.status.age_seconds < 0.2)


@pytest.mark.parametrize("beginning", [b"", b'{"type":"MODIF'])
async def test_a_watch_that_breaks_off(api, beginning):
    api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1")))
    async with following(api) as seen:
        await seen.until("10.0.0.1")
        await until(lambda: api.watchers)
        api.drop_watches(beginning)
        api.delete_unheard("s1")
        await until(lambda: seen.status.errors == 1)
        assert seen.workers == ["10.0.0.1"]
        await seen.until()
        assert seen.status.problem is None


async def test_the_servers_history_is_gone_while_it_is_watched(api):
    api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1")))
    clock = Clock()
    async with following(api, clock=clock) as seen:
        await seen.until("10.0.0.1")
        await until(lambda: api.watchers)
        api.delete_unheard("s1")
        clock.advance(10.0)
        api.compact()
        await seen.until()
        assert (api.lists, seen.status.errors) == (2, 0)


async def test_the_servers_history_is_gone_when_a_watch_is_taken_up(api):
    """The watch itself is answered with 410."""
    api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1")))
    async with following(api, watch=1.0) as seen:
        await seen.until("10.0.0.1")
        await until(lambda: api.watchers)
        api.delete_unheard("s1")
        api._version += 1
        api._oldest = api._version
        await seen.until()
        assert (api.lists, seen.status.errors) == (2, 0)


async def test_a_history_that_is_always_gone_is_a_failure(api):
    api._oldest = 10_000
    async with following(api) as seen:
        await until(lambda: seen.status.errors >= 1)
        assert seen.status.problem == "a list is too old as soon as it is read"
        assert seen.workers == []


async def test_deletes_that_were_never_told_heal(api):
    api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1")))
    async with following(api, relist=1.0) as seen:
        await seen.until("10.0.0.1")
        await until(lambda: api.watchers)
        api.delete_unheard("s1")
        await seen.until()
        assert seen.status.errors == 0


async def test_events_in_pieces_and_several_at_once(api):
    api.piece_bytes = 7
    async with following(api) as seen:
        await seen.until()
        await until(lambda: api.watchers)
        # Bytes at which `str.splitlines` would split, as a label or annotation may hold them.
        odd = endpoint_slice("s1", endpoint("a", "10.0.0.1"))
        odd["metadata"]["annotations"] = {"note": "one\u0085two\u2028three"}
        api.put(odd)
        api.bookmark()
        api.put(endpoint_slice("s2", endpoint("b", "10.0.0.2")))
        await seen.until("10.0.0.1", "10.0.0.2")
        assert seen.status.errors == 0


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nonsense\n", "makes no sense"),
        (b'{"type":"ADDED","object":{"metadata":7}}\n', "makes no sense"),
        (b'{"type":"ERROR","object":{"code":500,"message":"no leader"}}\n', "answers 500 no leader"),
        (b'{"type":"NEWS","object":{}}\n', "the API server answers 0"),
    ],
)
async def test_events_that_make_no_sense(api, line, problem):
    api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1")))
    async with following(api) as seen:
        await seen.until("10.0.0.1")
        await until(lambda: api.watchers)
        api.raw(line)
        problems = []
        await until(lambda: problems.append(seen.status.problem) or problem in str(problems))
        assert seen.workers == ["10.0.0.1"]
        await until(lambda: api.lists == 2)


async def test_an_event_without_end(api, monkeypatch):
    monkeypatch.setattr(kubernetes_api, "_LONGEST_LINE", 1000)
    async with following(api) as seen:
        await seen.until()
        await until(lambda: api.watchers)
        api.raw(b" " * 2000)
        await until(lambda: seen.status.errors >= 1)


async def test_a_server_that_fails_and_heals(api):
    api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1")))
    async with following(api) as seen:
        await seen.until("10.0.0.1")
        api.broken = True
        api.drop_watches()
        await until(lambda: seen.status.problem and "500 etcdserver: no leader" in seen.status.problem)
        assert seen.workers == ["10.0.0.1"]
        api.broken = False
        api.put(endpoint_slice("s1", endpoint("a", "10.0.0.2")))
        await seen.until("10.0.0.2")


async def test_a_server_that_is_down_and_comes_back(api):
    api.put(endpoint_slice("s1", endpoint("a", "10.0.0.1")))
    async with following(api) as seen:
        await seen.until("10.0.0.1")
        await api.stop()
        await until(lambda: seen.status.errors >= 2)
        assert "the API server cannot be read: ConnectError" in seen.status.problem
        assert seen.workers == ["10.0.0.1"]
        await api.start()
        api.delete("s1")
        await seen.until()


async def test_a_server_that_does_not_answer(api, monkeypatch):
    monkeypatch.setattr(kubernetes_api, "_LIST_SECONDS", 0.1)
    api.mute = True
    async with following(api) as seen:
        await until(lambda: seen.status.errors >= 1)
        api.mute = False
        await seen.until()


async def test_a_watch_that_hears_nothing_and_never_ends(api, monkeypatch):
    """The server is asked to end it, does not, and is taken for dead a little later."""
    monkeypatch.setattr(kubernetes_api, "_LATE_SECONDS", -0.9)
    async with following(api, watch=1.0) as seen:
        await until(lambda: seen.status.errors >= 1)
        assert "ReadTimeout" in seen.status.problem or seen.status.problem is None


CLIQUE = "nvidia.com/gpu.clique"


async def test_a_label_of_the_nodes_may_be_the_domain(api, caplog):
    api.nodes = {"n1": {CLIQUE: "c.1"}, "n2": {}}
    pods = [endpoint(f"{n}", f"10.0.0.{n}", nodeName=f"n{n}") for n in (1, 2, 3)]
    api.put(endpoint_slice("s", *pods, endpoint("4", "10.0.0.4")))
    source = source_of(api, node_label=CLIQUE)
    async with aclosing(source.changes()) as changes:
        domains = [worker.labels.get("domain") for worker in await anext(changes)]
        assert domains == ["c.1", None, None, None]
        assert sorted(api.node_lookups) == ["n1", "n2", "n3"]
        assert "label nvidia.com/gpu.clique of nodes is not known: the API server answers 403" in caplog.text
        upcoming = asyncio.ensure_future(anext(changes))
        await until(lambda: api.watchers)
        # Only a node that is new is asked for.
        api.nodes["n5"] = {CLIQUE: "c.2"}
        api.put(endpoint_slice("t", endpoint("5", "10.0.0.5", nodeName="n5")))
        assert (await upcoming)[-1].labels["domain"] == "c.2"
        assert api.node_lookups[3:] == ["n5"]
    # When everything is read again, so are the nodes; one that does not tell keeps its domain.
    api.nodes = {"n1": None, "n2": {CLIQUE: "c.1"}, "n3": {CLIQUE: "c.3"}, "n5": {}}
    async with aclosing(source.changes()) as changes:
        domains = [worker.labels.get("domain") for worker in await anext(changes)]
    assert domains == ["c.1", "c.1", "c.3", None, None]


async def test_workers_do_not_wait_long_for_their_domains(api, monkeypatch, caplog):
    monkeypatch.setattr("proxy.workers.discovery.node_domains._SECONDS", 0.05)
    api.nodes = {"n1": {CLIQUE: "c.1"}}
    api.slow_nodes = True
    api.put(endpoint_slice("s", endpoint("1", "10.0.0.1", nodeName="n1")))
    (worker,) = await first(source_of(api, node_label=CLIQUE))
    assert "domain" not in worker.labels
    assert "not all answers came within 0.05 s" in caplog.text


async def test_nodes_are_not_asked_for_without_need(api):
    api.put(endpoint_slice("s", endpoint("1", "10.0.0.1", nodeName="n1")))
    await first(source_of(api, domain="node"))
    assert api.node_lookups == []


async def test_the_event_loop_turns_while_much_is_read(api):
    for block in range(10):
        pods = [endpoint(f"{block}-{n}", f"10.0.{block}.{n + 1}") for n in range(100)]
        api.put(endpoint_slice(f"s{block}", *pods))
    async with LoopLag() as lag, following(api) as seen:
        await until(lambda: seen.workers and len(seen.workers) == 1000)
        await until(lambda: api.watchers)
        api.delete("s0")
        await until(lambda: len(seen.workers) == 900)
    assert lag.worst < 0.25


async def first(source):
    async with aclosing(source.changes()) as changes:
        return await anext(changes)


def context_of(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("kubernetes"))
    return context


@needs_openssl
async def test_the_service_account(tmp_path):
    authority = Authority(tmp_path)
    api = await FakeKubernetes(token="one", tls=context_of(authority)).start()
    try:
        directory = write_credentials(tmp_path, "one", ca=authority.certificate)
        host, port = api.url.removeprefix("https://").split(":")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        entry = KubernetesEntry(name="k", role="context", service="ctx", credentials=directory, watch=1.0)
        source = KubernetesSource(entry, environ=environ)
        seen = Following(source)
        task = asyncio.ensure_future(seen.follower.run())
        await until(lambda: api.watchers)
        # The token is renewed, and the old one does not work any more.
        write_credentials(tmp_path, "two")
        api.token = "two"
        await until(lambda: api.watches >= 3)
        assert (api.unauthorized, seen.status.errors) == (0, 0)
        api.token = "three"
        await until(lambda: seen.status.problem is not None)
        assert seen.status.problem == "the API server answers 401 Unauthorized"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    finally:
        await api.stop()


@needs_openssl
async def test_a_server_with_another_certificate(tmp_path):
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    api = await FakeKubernetes(tls=context_of(authority)).start()
    try:
        directory = write_credentials(tmp_path, "secret", ca=stranger.certificate)
        with pytest.raises(SourceLost, match="CERTIFICATE_VERIFY_FAILED"):
            await first(source_of(api, credentials=directory))
        assert api.authorization == []
    finally:
        await api.stop()


async def test_the_token_never_travels_in_the_clear(api, tmp_path):
    await first(source_of(api, credentials=write_credentials(tmp_path, "secret")))
    assert api.authorization == [""]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "namespace"),
        ({"namespace": "prod"}, "this is no pod"),
        ({"namespace": "prod", "api": "https://127.0.0.1:1"}, "ca.crt"),
    ],
)
async def test_what_is_missing_outside_a_pod(tmp_path, fields, problem):
    entry = KubernetesEntry(name="k", role="context", service="ctx", credentials=str(tmp_path), **fields)
    with pytest.raises(SourceLost, match=problem):
        await first(KubernetesSource(entry, environ={}))


def test_a_cluster_with_ipv6():
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert kubernetes_api._in_cluster(environ) == "https://[fd00::1]:443"
