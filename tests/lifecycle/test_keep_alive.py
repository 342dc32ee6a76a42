"""Comments while a streaming client waits, under our own server and under another one."""

import asyncio
import json

import pytest
from running_proxy import CHAT, chat, eventually, running_proxy

from proxy.sim import Speed

KEYS = {"sse_keepalive_seconds": 0.05}
COMMENT = ": keep-alive"
STREAM = chat(stream=True)


@pytest.fixture(params=["own", "uvicorn"])
def kind(request):
    return request.param


def split(text):
    """Comments and data of an event stream; nothing may stand inside an event."""
    events = text.split("\n\n")
    assert events.pop() == ""
    comments = [event for event in events if event.startswith(":")]
    assert set(comments) <= {COMMENT}
    data = [event for event in events if not event.startswith(":")]
    # All comments stand before the first event.
    assert events == comments + data
    return comments, [event.removeprefix("data: ") for event in data]


def without_ids(data):
    """Events of one request as of any other."""
    parsed = [json.loads(event) for event in data[:-1]]
    return [{**event, "id": "", "created": 0} for event in parsed]


async def test_a_slow_context_worker(kind):
    async with running_proxy(kind=kind, **KEYS) as proxy:
        plain = (await proxy.send(STREAM)).text
        assert COMMENT not in plain
        for worker in proxy.cluster.context_workers:
            worker.board.add({"kind": "slow_first_byte", "seconds": 0.3, "count": 1})
        response = await proxy.send(STREAM)
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers.get_list("x-request-id") == [response.headers["x-request-id"]]
        comments, data = split(response.text)
        assert 2 <= len(comments) <= 7
        assert data[-1] == "[DONE]"
        assert without_ids(data) == without_ids(split(plain)[1])
        # The connection serves again.
        assert (await proxy.send(STREAM)).status_code == 200
        proxy.assert_settled()


async def test_a_slow_first_token(kind):
    """The generation worker's head has come, its first event has not."""
    async with running_proxy(kind=kind, **KEYS) as proxy:
        for worker in proxy.cluster.generation_workers:
            worker.board.add({"kind": "stall", "after_events": 0, "seconds": 0.2})
        response = await proxy.send(STREAM)
        comments, data = split(response.text)
        assert comments
        assert data[-1] == "[DONE]"


async def test_the_queue(kind):
    async with running_proxy(kind=kind, max_inflight=1, **KEYS) as proxy:
        proxy.hold("context", count=1)
        _, writer = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        waiting = proxy.send(STREAM)
        await asyncio.sleep(0.2)
        writer.close()
        comments, data = split((await waiting).text)
        assert comments
        assert data[-1] == "[DONE]"


@pytest.mark.parametrize("leg", ["context", "generation"])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "status", "status": 418, "body": '{"error": {"message": "a teapot"}}'}, "a teapot"),
        ({"kind": "status", "status": 422, "body": '{\n "message": "no\\nmember"}'}, "no\nmember"),
        ({"kind": "status", "status": 418, "body": "plain text", "content_type": "text/plain"}, "plain text"),
    ],
)
async def test_an_answer_with_a_status_of_its_own_comes_too_late(kind, leg, fault, message):
    async with running_proxy(kind=kind, **KEYS) as proxy:
        for worker in proxy.cluster.workers:
            worker.board.add({"kind": "slow_first_byte", "seconds": 0.2, "leg": leg})
            worker.board.add({**fault, "leg": leg})
        response = await proxy.send(STREAM)
        assert response.status_code == 200
        comments, data = split(response.text)
        assert comments
        assert [json.loads(event)["error"]["message"] for event in data] == [message]


async def test_an_error_of_the_proxy_becomes_an_event(kind):
    async with running_proxy(kind=kind, timeout_context=0.2, max_retries=0, **KEYS) as proxy:
        proxy.hold("context", count=1)
        response = await proxy.send(STREAM)
        assert response.status_code == 200
        comments, data = split(response.text)
        assert comments
        assert [json.loads(event)["error"]["code"] for event in data] == ["context_timeout"]
        proxy.assert_settled()


async def test_an_early_error_keeps_its_status(kind):
    async with running_proxy(kind=kind, max_inflight=1, max_queued=0, **KEYS) as proxy:
        proxy.hold("context", count=1)
        _, writer = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        assert (await proxy.send(STREAM)).status_code == 429
        writer.close()


async def test_requests_that_are_not_streamed_get_no_comments(kind):
    async with running_proxy(kind=kind, cluster={"speed": Speed(decode_ms=30)}, **KEYS) as proxy:
        response = await proxy.send()
        assert response.json()["choices"]


async def test_a_client_that_leaves_while_it_waits(kind):
    async with running_proxy(kind=kind, **KEYS) as proxy:
        proxy.hold("context", count=1)
        reader, writer = await proxy.open(STREAM)
        await reader.readuntil(b": keep-alive\n\n")
        writer.close()
        await eventually(lambda: proxy.service.admission.in_flight == 0)
        proxy.assert_settled()


async def test_an_old_client(kind):
    """HTTP/1.0 knows no chunks: the end of the connection is the end of the answer."""
    if kind == "uvicorn":
        pytest.skip("uvicorn sends chunks to such clients")
    async with running_proxy(kind=kind, **KEYS) as proxy:
        for worker in proxy.cluster.context_workers:
            worker.board.add({"kind": "slow_first_byte", "seconds": 0.2, "count": 1})
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        body = json.dumps(STREAM).encode()
        writer.write(b"POST %b HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (CHAT.encode(), len(body), body))
        _, _, text = (await reader.read()).decode().partition("\r\n\r\n")
        comments, data = split(text)
        assert comments
        assert data[-1] == "[DONE]"
        writer.close()


async def test_stopping_ends_the_stream_with_an_event():
    async with running_proxy(**KEYS) as proxy:
        proxy.hold("context", count=1)
        reader, writer = await proxy.open(STREAM)
        await reader.readuntil(b": keep-alive\n\n")
        task = asyncio.create_task(reader.read())
    assert b'"code":"shutting_down"' in await task
    writer.close()


async def test_context_answers_that_are_final(kind):
    async with running_proxy(kind=kind, **KEYS) as proxy:
        for worker in proxy.cluster.context_workers:
            worker.board.add({"kind": "slow_first_byte", "seconds": 0.2, "count": 1})
        response = await proxy.send(chat(stream=True, max_tokens=1))
        comments, data = split(response.text)
        assert comments
        assert data[-1] == "[DONE]"
