"""Anthropic's Messages API in one leg, where the workers have it."""

import json

import pytest
from running_proxy import running_proxy

from proxy.sim.answer import expected_answers

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
NEXT = {"next_routes": True}
BODY = {"model": "sim", "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}


def expected_text():
    (answer,) = expected_answers({"messages": BODY["messages"], "max_tokens": 8})
    return answer.text


async def test_a_message():
    async with running_proxy(cluster=NEXT) as proxy:
        answer = await proxy.client.post(MESSAGES, json={**BODY, "prompt_token_ids": [1]})
        assert answer.status_code == 200, answer.text
        assert answer.json()["content"] == [{"type": "text", "text": expected_text()}]
        assert answer.headers["x-disagg-proxy-dropped"] == "prompt_token_ids"
        (sent,) = proxy.cluster.generation_workers[0].requests
        assert sent.json() == BODY
        assert proxy.legs("context") == 0
        proxy.assert_settled()


async def test_a_stream():
    async with running_proxy(cluster=NEXT) as proxy:
        text = (await proxy.client.post(MESSAGES, json={**BODY, "stream": True})).text
        events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]
        assert (events[0]["type"], events[-1]["type"]) == ("message_start", "message_stop")
        deltas = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
        assert "".join(deltas) == expected_text()


async def test_a_stream_that_breaks_off_says_so():
    async with running_proxy(cluster=NEXT) as proxy:
        proxy.cluster.generation_workers[0].board.add({"kind": "cut", "after_events": 3})
        text = (await proxy.client.post(MESSAGES, json={**BODY, "stream": True})).text
        last = text.strip().rsplit("\n\n", 1)[1]
        assert last.startswith("event: error\ndata: ")
        assert json.loads(last.partition("data: ")[2])["error"]["type"] == "api_error"


async def test_counts():
    async with running_proxy(cluster=NEXT) as proxy:
        answer = await proxy.client.post(COUNT, json={"model": "sim", "messages": BODY["messages"]})
        assert answer.json()["input_tokens"] > 0
        assert [request.path for request in proxy.cluster.context_workers[0].requests] == [COUNT]


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
async def test_workers_without_it(path):
    async with running_proxy() as proxy:
        answer = await proxy.client.post(path, json=BODY)
        assert answer.status_code == 404
        assert answer.json() == {
            "type": "error",
            "error": {"type": "not_found_error", "message": f"the workers have no route {path}"},
        }
        assert answer.headers["x-disagg-proxy-error"] == "client;not_found"


async def test_null_is_no_message():
    """What workers answer when their executor is going down."""
    async with running_proxy(cluster=NEXT) as proxy:
        proxy.cluster.generation_workers[0].board.add({"kind": "null_body"})
        answer = await proxy.client.post(MESSAGES, json=BODY)
        assert (answer.status_code, answer.json()["error"]["type"]) == (502, "api_error")
        assert answer.headers["x-disagg-proxy-error"] == "gen;bad_worker_response"
        proxy.assert_settled()


async def test_a_workers_refusal_passes_as_it_is():
    async with running_proxy(cluster=NEXT) as proxy:
        answer = await proxy.client.post(MESSAGES, json={"model": "sim"})
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_errors_of_the_proxy_have_the_shape():
    async with running_proxy(cluster=NEXT, max_inflight=1, max_queued=0, max_retries=0) as proxy:
        proxy.cluster.generation_workers[0].board.add({"kind": "disconnect"})
        answer = await proxy.client.post(MESSAGES, json=BODY)
        assert (answer.status_code, answer.json()["error"]["type"]) == (502, "api_error")
        assert answer.headers["x-disagg-proxy-error"] == "gen;worker_disconnected"
