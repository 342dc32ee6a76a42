"""Pause and resume under other engines' names, abort by id, loads."""

import asyncio

import pytest
from controlled_proxy import controlled
from running_proxy import chat, eventually

from proxy.sim import Speed

SLOW = {"speed": Speed(decode_ms=20)}
LONG = chat(max_tokens=2000, ignore_eos=True)


@pytest.mark.parametrize(
    ("pause", "resume"),
    [
        ("/pause", "/resume"),
        ("/pause?mode=wait&clear_cache=false", "/continue_generation"),
        ("/pause_generation", "/resume_generation"),
    ],
)
async def test_pause_and_resume(pause, resume):
    async with controlled() as (proxy, admin):
        assert (await admin.get("/pause")).json()["paused"] is False
        state = await admin.post(pause, json={})
        assert (state.status_code, state.json()["paused"]) == (200, True)
        assert (await admin.get("/pause")).json()["paused"] is True
        waiting = proxy.send()
        await eventually(lambda: proxy.service.admission.queued == 1)
        assert (await admin.post(resume, json={})).json()["paused"] is False
        assert (await waiting).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [("/pause?mode=abort", {}), ("/pause_generation", {}), ("/pause_generation", {"mode": "abort"})],
)
async def test_a_pause_that_aborts(path, body):
    async with controlled(cluster=SLOW) as (proxy, admin):
        running = proxy.send(LONG)
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        assert (await admin.post(path, json=body)).json()["in_flight"] == 0
        answer = await running
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "aborted")


PAUSES_THAT_CANNOT_BE = [
    ("/pause?mode=keep", {}, 501),
    ("/admin/pause?mode=keep", None, 501),
    ("/pause?clear_cache=true", {}, 501),
    ("/pause_generation", {"mode": "in_place"}, 501),
    ("/pause_generation", {"mode": "retract"}, 501),
    ("/pause_generation", {"mode": 1}, 400),
    ("/pause_generation", {"how": "x"}, 400),
    ("/pause?mode=later", {}, 400),
    ("/pause?x=1", {}, 400),
]


async def test_pauses_that_cannot_be():
    async with controlled() as (proxy, admin):
        for path, body, status in PAUSES_THAT_CANNOT_BE:
            assert (await admin.post(path, json=body)).status_code == status
            assert not proxy.service.admission.paused


async def test_abort_by_id():
    async with controlled(cluster=SLOW) as (proxy, admin):
        first = proxy.send(LONG, headers={"x-request-id": "first"})
        second = proxy.send({**LONG, "rid": "second"})
        third = proxy.send({**LONG, "stream": True}, headers={"x-request-id": "third"})
        await eventually(lambda: proxy.legs("generation") == 3)
        for name in ("unknown", "first"):
            answer = await admin.post("/abort_request", json={"rid": name})
            assert answer.json() == {"aborted": int(name == "first")}
        answer = await first
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "aborted")
        assert "retry-after" not in answer.headers
        assert proxy.service.admission.in_flight == 2
        assert (await admin.post("/abort_request", json={"rid": ["second", "third"]})).json() == {
            "aborted": 2
        }
        assert (await second).status_code == 410
        streamed = await third
        assert streamed.status_code == 200
        assert '"code":"aborted"' in streamed.text.splitlines()[-2]
        await eventually(lambda: not any(worker.engine.running for worker in proxy.cluster.workers))
        assert (await proxy.send()).status_code == 200
        proxy.assert_settled()


async def test_abort_all_ends_those_who_wait_too():
    async with controlled(cluster=SLOW, max_inflight=1) as (proxy, admin):
        tasks = [proxy.send(LONG) for _ in range(3)]
        await eventually(lambda: proxy.service.admission.queued == 2)
        assert (await admin.post("/abort_request", json={"abort_all": True})).json() == {"aborted": 3}
        assert {(await task).status_code for task in tasks} == {410}
        assert proxy.legs("context") == 1
        # A hand-off that had been given is still taken, for nobody.
        await eventually(lambda: not any(worker.in_flight for worker in proxy.service.registry.workers))
        proxy.assert_settled()


async def test_one_who_waits_is_aborted_by_id():
    async with controlled(cluster=SLOW, max_inflight=1) as (proxy, admin):
        proxy.hold("generation", count=1)
        running = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        waiting = proxy.send(headers={"x-request-id": "w"})
        await eventually(lambda: proxy.service.admission.queued == 1)
        assert (await admin.post("/abort_request", json={"rid": "w"})).json() == {"aborted": 1}
        assert (await waiting).status_code == 410
        assert proxy.service.admission.in_flight == 1
        running[1].close()


async def test_an_abort_before_the_hand_off_was_taken_leaves_no_kv():
    async with controlled() as (proxy, admin):
        proxy.cluster.context_workers[0].board.add(
            {"kind": "slow_first_byte", "seconds": 0.2, "leg": "context", "count": 1}
        )
        task = proxy.send(headers={"x-request-id": "early"})
        await eventually(lambda: proxy.legs("context") == 1)
        assert (await admin.post("/abort_request", json={"rid": "early"})).json() == {"aborted": 1}
        assert (await task).status_code == 410
        await eventually(lambda: not proxy.cluster.workers[0].engine.running)
        assert proxy.legs("generation") == 0


ABORTS_OF_NOTHING = [
    ({}, "rid"),
    ({"abort_all": False}, "rid"),
    ({"rid": 1}, "rid"),
    ({"rid": [1]}, "rid"),
    ({"abort_all": "yes"}, "abort_all"),
    ({"rid": "a", "why": "b"}, "why"),
]


async def test_aborts_of_nothing():
    async with controlled() as (_, admin):
        for body, param in ABORTS_OF_NOTHING:
            answer = await admin.post("/abort_request", json=body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_loads():
    async with controlled(cluster=SLOW, max_inflight=1) as (proxy, admin):
        tasks = [proxy.send(LONG) for _ in range(2)]
        await eventually(lambda: proxy.legs("generation") == 1)
        told = (await admin.get("/v1/loads?include=core")).json()
        assert told["aggregate"] == {"total_running_reqs": 1, "total_waiting_reqs": 1, "total_reqs": 2}
        assert {each["role"]: each["num_running_reqs"] for each in told["loads"]} == {
            "context": 0,
            "generation": 1,
        }
        await admin.post("/abort_request", json={"abort_all": True})
        await asyncio.gather(*tasks)
        await eventually(lambda: not proxy.service.admission.in_flight)
        assert (await admin.get("/v1/loads")).json()["aggregate"]["total_reqs"] == 0
