"""GET, POST and DELETE /workers, drain and resume, in one process."""

from urllib.parse import quote

import pytest
from controlled_proxy import controlled
from running_proxy import chat, eventually

TWO = {"context": 2, "generation": 1}


async def urls_of(admin, role="context"):
    found = (await admin.get("/workers")).json()
    assert found["total"] == len(found["workers"])
    return {each["url"]: each for each in found["workers"] if each["role"] == role}


async def test_what_is_told_of_a_worker():
    async with controlled() as (proxy, admin):
        proxy.hold("generation", count=1)
        running = await proxy.open(chat())
        await eventually(lambda: proxy.legs("generation") == 1)
        worker = proxy.cluster.generation_workers[0]
        (told,) = (await urls_of(admin, "generation")).values()
        assert told.pop("id")
        assert told == {
            "url": f"http://{worker.address}",
            "role": "generation",
            "model": None,
            "state": "ready",
            "in_flight": 1,
            "placed": 1,
            "version": worker.profile.reported_version,
            "labels": {},
        }
        running[1].close()


@pytest.mark.parametrize("body", [{"role": "context"}, {"worker_type": "prefill"}])
async def test_a_worker_is_added_and_removed(body):
    async with controlled(cluster=TWO) as (proxy, admin):
        gone, spare = proxy.cluster.context_workers
        for name in (f"http://{spare.address}", quote(f"http://{gone.address}", safe="")):
            assert (await admin.delete(f"/workers/{name}")).json() == {"workers": [], "total": 0}
        assert await urls_of(admin) == {}
        told = (await admin.get("/workers")).json()["removed"]
        assert told == [spare.address, gone.address]
        added = await admin.post("/workers", json={"url": spare.address, "labels": {"domain": "x"}, **body})
        assert added.status_code == 200, added.text
        assert added.json()["workers"][0]["labels"] == {"domain": "x"}
        assert (await admin.get("/workers")).json()["removed"] == [gone.address]
        await eventually(lambda: proxy.service.ready, "readiness")
        assert (await proxy.send()).status_code == 200
        assert spare.legs["context"] == 1
        assert gone.legs["context"] == 0


async def test_a_worker_that_runs_a_leg_drains_first():
    async with controlled(cluster=TWO) as (proxy, admin):
        worker = proxy.cluster.context_workers[0]
        worker.board.add({"kind": "slow_first_byte", "seconds": 0.5, "leg": "context"})
        tasks = [proxy.send() for _ in range(4)]
        await eventually(lambda: worker.legs["context"] > 0)
        (told,) = (await admin.delete(f"/workers/{worker.address}")).json()["workers"]
        assert (told["state"], told["in_flight"] > 0) == ("draining", True)
        assert {(await task).status_code for task in tasks} == {200}
        # Gone with its last leg.
        assert f"http://{worker.address}" not in await urls_of(admin)
        assert (await admin.get(f"/workers/{worker.address}")).status_code == 404


@pytest.mark.parametrize("added", [False, True])
async def test_drain_and_resume(added):
    async with controlled(cluster=TWO) as (proxy, admin):
        worker, other = proxy.cluster.context_workers
        if added:
            await admin.post("/workers", json={"url": worker.address, "role": "context"})
        identifier = (await urls_of(admin))[f"http://{worker.address}"]["id"]
        drained = await admin.post(f"/workers/{identifier}/drain")
        assert drained.json()["workers"][0]["state"] == "draining"
        for _ in range(4):
            assert (await proxy.send()).status_code == 200
        assert (worker.legs["context"], other.legs["context"]) == (0, 4)
        # The configuration is read again: the operator's word stands.
        proxy.service.registry.apply(proxy.service.settings.workers)
        assert (await urls_of(admin))[f"http://{worker.address}"]["state"] == "draining"
        resumed = await admin.post(f"/workers/{identifier}/resume")
        assert resumed.json()["workers"][0]["state"] == "ready"
        for _ in range(4):
            await proxy.send()
        assert worker.legs["context"] > 0


WHAT_NO_WORKER_CAN_BE = [
    ({}, "url"),
    ({"url": "nonsense", "role": "context"}, "url"),
    ({"url": "a:1"}, "role"),
    ({"url": "a:1", "role": "decoder"}, "role"),
    ({"url": "a:1", "role": "context", "labels": {"a": 1}}, "labels.a"),
    ({"url": "a:1", "role": "context", "priority": 1}, "priority"),
]


async def test_what_no_worker_can_be():
    async with controlled() as (_, admin):
        for body, param in WHAT_NO_WORKER_CAN_BE:
            answer = await admin.post("/workers", json=body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
            assert (await admin.post("/workers", content=b"[]")).json()["error"]["code"] == "invalid_json"


MISTAKES = [
    ("DELETE", "/workers/nothing", 404),
    ("DELETE", "/workers/nothing:1", 404),
    ("GET", "/workers?x=1", 400),
    ("POST", "/workers/a:1/explode", 405),
    ("POST", "/workers/a:1/drain", 404),
]


async def test_mistakes():
    async with controlled() as (_, admin):
        for method, path, status in MISTAKES:
            assert (await admin.request(method, path)).status_code == status


async def test_off_by_default():
    async with controlled(rl_control=False) as (proxy, admin):
        for client in (admin, proxy.client):
            assert (await client.get("/workers")).status_code == 404
    async with controlled() as (proxy, admin):
        assert (await proxy.client.get("/workers")).status_code == 404
        assert (await admin.get("/workers")).status_code == 200
