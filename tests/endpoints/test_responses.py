"""OpenAI's Responses API in two legs."""

import asyncio
import json

import pytest
from running_proxy import become, eventually, running_proxy

from proxy.sim import Speed
from proxy.sim.answer import expected_answers

RESPONSES = "/v1/responses"
NEXT = {"next_routes": True}


def ask(text="hello there", **fields):
    return {"model": "sim", "input": text, "max_output_tokens": 8, **fields}


def expected(text="hello there", budget=8):
    messages = [{"role": "user", "content": text}]
    (answer,) = expected_answers({"messages": messages, "max_tokens": budget})
    return answer


def events_of(text):
    found = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        data = json.loads(lines["data"])
        assert data["type"] == lines["event"]
        found.append(data)
    return found


def output_text(response):
    return response["output"][0]["content"][0]["text"]


@pytest.fixture(params=["own", "uvicorn"])
def kind(request):
    return request.param


@pytest.mark.parametrize("base64", [False, True])
async def test_both_legs(kind, base64):
    async with running_proxy(kind=kind, cluster=NEXT, gen_tokids_ctxbytes=base64) as proxy:
        answer = await proxy.client.post(
            RESPONSES, json=ask(prompt_cache_key="c-1", client_metadata={"a": 1})
        )
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert output_text(told) == expected().text
        assert not {"disaggregated_params", "prompt_token_ids", "prompt_token_ids_b64"} & told.keys()
        (context,) = proxy.cluster.context_workers[0].requests
        (generation,) = proxy.cluster.generation_workers[0].requests
        assert (context.path, context.leg) == (RESPONSES, "context")
        assert (generation.path, generation.leg) == (RESPONSES, "generation")
        sent = generation.json()
        assert ("prompt_token_ids_b64" in sent, "prompt_token_ids" in sent) == (base64, not base64)
        assert sent["store"] is context.json()["store"] is False
        assert sent["client_metadata"] == {"a": 1}
        # The context worker has counted the prompt.
        usage = sent["disaggregated_params"]["ctx_usage"]
        assert usage["prompt_tokens"] == told["usage"]["input_tokens"] > 0
        assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
        proxy.assert_settled()


async def test_a_stream(kind):
    async with running_proxy(kind=kind, cluster=NEXT) as proxy:
        answer = await proxy.client.post(RESPONSES, json=ask(stream=True))
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "disaggregated_params" not in answer.text
        assert "prompt_token_ids" not in answer.text
        events = events_of(answer.text)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert "".join(deltas) == expected().text
        assert output_text(events[-1]["response"]) == expected().text
        assert proxy.cluster.kv.leftover == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_the_context_worker_finishes(stream):
    async with running_proxy(cluster=NEXT) as proxy:
        body = ask("stop [sim:context-stop]", stream=stream)
        answer = await proxy.client.post(RESPONSES, json=body)
        assert proxy.legs("generation") == 0
        assert "disaggregated_params" not in answer.text
        if not stream:
            assert answer.json()["status"] == "completed"
            return
        created, running, completed = events_of(answer.text)
        assert [each["sequence_number"] for each in (created, running, completed)] == [0, 1, 2]
        kinds = [each["type"] for each in (created, running, completed)]
        assert kinds == ["response.created", "response.in_progress", "response.completed"]
        assert (created["response"]["status"], created["response"]["output"]) == ("in_progress", [])
        assert output_text(completed["response"])


async def test_a_budget_of_one_token_is_incomplete():
    async with running_proxy(cluster=NEXT) as proxy:
        told = (await proxy.client.post(RESPONSES, json=ask(max_output_tokens=1))).json()
        assert told["status"] == "incomplete"
        assert proxy.legs("generation") == 1


async def test_messages_as_input():
    async with running_proxy(cluster=NEXT) as proxy:
        items = [{"role": "user", "content": [{"type": "input_text", "text": "hello there"}]}]
        told = (await proxy.client.post(RESPONSES, json=ask(items))).json()
        assert output_text(told) == expected().text


async def test_what_must_not_come_from_clients():
    async with running_proxy(cluster=NEXT) as proxy:
        body = ask(
            disaggregated_params={"request_type": "generation_only"},
            prompt_token_ids=[1],
            store=True,
            metadata=None,
        )
        answer = await proxy.client.post(RESPONSES, json=body)
        assert answer.status_code == 200
        assert set(answer.headers["x-disagg-proxy-dropped"].split(",")) == {
            "disaggregated_params",
            "prompt_token_ids",
        }
        sent = proxy.cluster.context_workers[0].requests[0].json()
        assert "prompt_token_ids" not in sent
        assert "metadata" not in sent
        assert sent["store"] is False
        assert sent["disaggregated_params"]["request_type"] == "context_only"


REFUSALS = [
    ({"model": "sim"}, "input"),
    ({"input": "a"}, "model"),
    (ask(previous_response_id="resp_1"), "previous_response_id"),
    (ask(conversation="conv_1"), "conversation"),
    (ask(background=True), "background"),
    (ask(stream="yes"), "stream"),
]


async def test_refusals():
    async with running_proxy(cluster=NEXT) as proxy:
        for body, param in REFUSALS:
            answer = await proxy.client.post(RESPONSES, json=body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
            assert proxy.legs("context") == 0


@pytest.mark.parametrize(
    ("profile", "cluster", "status", "code"),
    [
        ("old", {}, 404, "not_found"),
        ("jul", {}, 501, "unsupported"),
        ("new", {}, 501, "unsupported"),
        ("jul", {"openapi": False}, 404, "not_found"),
    ],
)
async def test_workers_that_cannot(profile, cluster, status, code):
    async with running_proxy(cluster={"profile": profile, **cluster}) as proxy:
        answer = await proxy.client.post(RESPONSES, json=ask())
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert proxy.legs("context") == 0


async def test_one_worker_that_cannot_is_enough():
    async with running_proxy(cluster={**NEXT, "generation": 2}) as proxy:
        become(proxy.cluster.generation_workers[1], "old")
        for instance in proxy.service.registry.instances:
            if instance.address.text == proxy.cluster.generation_workers[1].address:
                instance.capabilities.routes = None
        assert (await proxy.client.post(RESPONSES, json=ask())).status_code == 404


async def test_one_leg_when_the_configuration_says_so():
    async with running_proxy(pass_through=[{"path": RESPONSES}]) as proxy:
        for stream in (False, True):
            answer = await proxy.client.post(RESPONSES, json=ask(stream=stream))
            told = events_of(answer.text)[-1]["response"] if stream else answer.json()
            assert output_text(told) == expected().text
        assert (proxy.legs("context"), proxy.legs("generation")) == (0, 2)


async def test_a_failed_context_leg_goes_to_another_worker():
    async with running_proxy(cluster={**NEXT, "context": 2}) as proxy:
        for worker in proxy.cluster.context_workers:
            worker.board.add({"kind": "missing_handoff", "leg": "context", "count": 1, "handoff": "null"})
        answer = await proxy.client.post(RESPONSES, json=ask())
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "bad_worker_response"
        assert (await proxy.client.post(RESPONSES, json=ask())).status_code == 200


async def test_a_client_that_leaves_between_the_legs_leaves_no_kv():
    async with running_proxy(cluster={**NEXT, "speed": Speed(decode_ms=20)}) as proxy:
        proxy.hold("generation", count=1)
        task = asyncio.create_task(proxy.client.post(RESPONSES, json=ask(stream=True)))
        await eventually(lambda: proxy.legs("generation") == 1)
        task.cancel()
        await eventually(lambda: not proxy.service.admission.in_flight)
        proxy.assert_settled()
