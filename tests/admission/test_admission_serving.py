"""Admission with real sockets: who waits, who is refused, and that nothing is left."""

import asyncio

import pytest
from running_proxy import chat, eventually, running_proxy

from proxy.sim import Speed

SLOW = {"speed": Speed(decode_ms=10)}


def refusal(response):
    error = response.json()["error"]
    return response.status_code, error["code"], response.headers["x-disagg-proxy-error"]


async def test_requests_beyond_the_limit_wait_and_are_served():
    async with running_proxy(cluster=SLOW, max_inflight=2) as proxy:
        tasks = [proxy.send() for _ in range(8)]
        await eventually(lambda: proxy.service.admission.queued == 6)
        assert proxy.legs("context") <= 2
        assert {(await task).status_code for task in tasks} == {200}
        proxy.assert_settled()


@pytest.mark.parametrize("key", ["max_inflight", "max_inflight_per_generation_worker"])
async def test_those_who_wait_have_not_been_prefilled(key):
    async with running_proxy(**{key: 1}) as proxy:
        proxy.hold("generation", count=1)
        _, writer = await proxy.open(chat())
        await eventually(lambda: proxy.legs("generation") == 1)
        waiting = proxy.send()
        await eventually(lambda: proxy.service.admission.queued == 1)
        assert proxy.legs("context") == 1
        writer.close()  # the first client leaves: its place goes to the next
        assert (await waiting).status_code == 200
        proxy.assert_settled()


async def test_the_context_limit_ends_with_the_context_leg():
    async with running_proxy(cluster=SLOW, max_inflight_per_context_worker=1) as proxy:
        tasks = [proxy.send(chat(max_tokens=20)) for _ in range(3)]
        # All three are in their generation phase at once.
        await eventually(lambda: proxy.service.admission.in_flight == 3)
        assert {(await task).status_code for task in tasks} == {200}
        proxy.assert_settled()


async def test_batch_sizes_of_the_workers_limit_by_themselves():
    async with running_proxy(
        cluster={"speed": Speed(decode_ms=10, max_batch=2)}, max_inflight_per_generation_worker="auto"
    ) as proxy:
        await eventually(lambda: proxy.service.registry.instances[0].max_batch_size == 2)
        tasks = [proxy.send() for _ in range(3)]
        await eventually(lambda: proxy.service.admission.queued == 1)
        assert proxy.service.admission.in_flight == 2
        assert {(await task).status_code for task in tasks} == {200}


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"max_queued": 1}, "queue_full"),
        ({"max_queued_bytes": 120}, "queue_bytes_full"),
        ({"max_queued": 0}, "queue_full"),
    ],
)
async def test_refusals_say_why(keys, code):
    async with running_proxy(max_inflight=1, **keys) as proxy:
        proxy.hold("context", count=1)
        running = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        waiting = []
        if keys.get("max_queued") != 0:
            waiting.append(proxy.send())
            await eventually(lambda: proxy.service.admission.queued == 1)
        response = await proxy.send()
        assert refusal(response) == (429, code, f"proxy;{code}")
        metrics = (await proxy.client.get("/metrics")).text.splitlines()
        assert f'disagg_proxy_refused_total{{code="{code}"}} 1.0' in metrics
        assert f"disagg_proxy_queued_requests {float(len(waiting))}" in metrics
        assert "disagg_proxy_admitted_requests 1.0" in metrics
        assert response.headers["retry-after"] == "1"
        running[1].close()
        for task in waiting:
            assert (await task).status_code == 200
        await eventually(lambda: not proxy.service.admission.in_flight)
        proxy.assert_settled()


async def test_the_time_in_the_queue_is_limited():
    async with running_proxy(max_inflight=1, timeout_queue=0.1) as proxy:
        proxy.hold("context", count=1)
        _, writer = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        response = await proxy.send()
        assert refusal(response) == (503, "queue_timeout", "proxy;queue_timeout")
        metrics = (await proxy.client.get("/metrics")).text
        assert 'disagg_proxy_queue_seconds_count{outcome="error"} 1.0' in metrics
        assert response.headers["retry-after"] == "1"
        assert proxy.service.admission.queued == 0
        writer.close()


async def test_the_total_deadline_counts_in_the_queue():
    async with running_proxy(max_inflight=1) as proxy:
        proxy.hold("context", count=1)
        _, writer = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        response = await proxy.send(headers={"x-request-timeout-ms": "80"})
        assert refusal(response)[:2] == (504, "deadline_exceeded")
        writer.close()


@pytest.mark.parametrize("kind", ["own", "uvicorn"])
async def test_a_client_that_leaves_the_queue_is_noticed_at_once(kind):
    async with running_proxy(kind=kind, max_inflight=1) as proxy:
        proxy.hold("context", count=1)
        _, running = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        taken = []
        while not taken or (min(taken) >= 0.05 and len(taken) < 5):  # the machine may stall now and then
            _, waiting = await proxy.open(chat())
            await eventually(lambda: proxy.service.admission.queued == 1)
            began = asyncio.get_running_loop().time()
            waiting.close()
            await eventually(lambda: proxy.service.admission.queued == 0)
            taken.append(asyncio.get_running_loop().time() - began)
        assert min(taken) < 0.05
        running.close()
        await eventually(lambda: proxy.service.admission.in_flight == 0)
        proxy.assert_settled()


@pytest.mark.parametrize("how", ["header", "member"])
async def test_priority(how):
    """The one that came last goes first."""

    def body(name, priority):
        return chat(name, **({"priority": priority} if how == "member" else {}))

    def headers(priority):
        return {"x-disagg-proxy-priority": str(priority)} if how == "header" else {}

    async with running_proxy(max_inflight=1, queue_order="priority") as proxy:
        proxy.hold("context", count=1)
        _, writer = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        order = []
        tasks = []
        for name, priority in (("low", 0.1), ("middle", 0.5), ("high", 0.9)):
            task = proxy.send(body(name, priority), headers=headers(priority))
            task.add_done_callback(lambda _, name=name: order.append(name))
            tasks.append(task)
            await eventually(lambda: proxy.service.admission.queued == len(tasks))
        writer.close()
        assert {(await task).status_code for task in tasks} == {200}
        assert order == ["high", "middle", "low"]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (chat(priority=2), {}),
        (chat(priority="high"), {}),
        (chat(), {"x-disagg-proxy-priority": "-1"}),
        (chat(), {"x-disagg-proxy-priority": "NaN"}),
    ],
)
async def test_a_priority_is_a_number_between_0_and_1(body, headers):
    async with running_proxy(queue_order="priority") as proxy:
        response = await proxy.send(body, headers=headers)
        assert response.status_code == 400
        assert "between 0 and 1" in response.json()["error"]["message"]
        proxy.assert_settled()


async def test_shutting_down_ends_those_who_wait():
    async with running_proxy(max_inflight=1) as proxy:
        proxy.hold("context", count=1)
        _, writer = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        reader, waiting = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.queued == 1)
        service = proxy.service
    assert service.admission.queued == service.admission.in_flight == 0
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"shutting_down"' in answer
    writer.close()
    waiting.close()
