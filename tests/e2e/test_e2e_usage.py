"""Usage adds up: the prompt as the context worker counted it, the completion from the generation worker."""

import json

import pytest
from e2e_bodies import CHAT, chat, completion, dialect, events, expected_usage, streamed_text
from running_proxy import running_proxy

from proxy.sim import expected_text
from proxy.sim.profiles import PROFILES

BODIES = {"chat": chat, "completion": completion}


# With KV events the context worker has something to find in its cache.
@pytest.fixture(params=[*PROFILES, "gathered"])
def stack(make_stack, request):
    if request.param == "gathered":
        return make_stack({"profile": "old", "kv_events": True}, stream_coalesce_ms=5)
    return make_stack({"profile": request.param, "kv_events": True}, worker_dialect=dialect(request.param))


@pytest.fixture(params=BODIES)
def body(request):
    """Long enough for a whole block of KV; each test has a prompt of its own."""
    made = BODIES[request.param]()
    text = f"{request.node.name} " * 20
    if "messages" in made:
        made["messages"][0]["content"] = text
    else:
        made["prompt"] = text
    return made


def cached_tokens(stack, body):
    """What the context worker says of a prompt that it has seen."""
    assert stack.post(body).json()["usage"] == expected_usage(body)
    usage = stack.post(body).json()["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached < usage["prompt_tokens"]
    assert usage == expected_usage(body, cached=cached)
    return cached


def test_whole_answers(stack, body):
    cached_tokens(stack, body)
    parameters = stack.requests("generation")[-1].json()["disaggregated_params"]
    assert ("ctx_usage" in parameters) is (stack.cluster.generation_workers[0].profile.name != "old")


def test_the_event_of_a_stream(stack, body):
    cached = cached_tokens(stack, body)
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    text = stack.post(asked).text
    *others, last, done = events(text)
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"] == expected_usage(body, cached=cached)
    assert not any(event.get("usage") for event in others)
    assert streamed_text(text) == expected_text(body)


def test_usage_in_each_event(stack, body):
    cached = cached_tokens(stack, body)
    options = {"include_usage": True, "continuous_usage_stats": True}
    *others, last, _ = events(stack.post({**body, "stream": True, "stream_options": options}).text)
    expected = expected_usage(body, cached=cached)
    assert last["usage"] == expected
    counts = []
    for event in others:
        usage = event["usage"]
        counts.append(usage["completion_tokens"])
        assert usage["prompt_tokens"] == expected["prompt_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens_details"] == expected["prompt_tokens_details"]
    assert counts == sorted(counts)
    assert counts[-1] == expected["completion_tokens"]


def test_streams_that_ask_for_no_usage_are_the_workers_own(stack, body):
    """To the byte; nothing looks into them."""
    text = stack.post({**body, "stream": True}).text
    assert not any(event != "[DONE]" and event.get("usage") for event in events(text))
    assert streamed_text(text) == expected_text(body)


def test_a_broken_stream_ends_with_an_error_event(make_stack):
    stack = make_stack({"profile": "old"})
    stack.cluster.generation_workers[0].add_fault(kind="cut", after_events=3, inside=True, count=1)
    text = stack.post(chat(stream=True, stream_options={"include_usage": True})).text
    *others, last = text.removesuffix("\n\n").split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "worker_disconnected"
    assert len(others) == 3
    assert all(json.loads(each.removeprefix("data: "))["choices"] for each in others)


@pytest.mark.parametrize("openapi", [True, False], ids=["asked", "learnt"])
async def test_an_old_worker_behind_a_newer_one(kind, openapi):
    """Its context worker shows `ctx_usage`, and it would refuse that."""
    cluster = {"context": 1, "generation": 1, "kv_events": True, "openapi": openapi}
    profiles = {"context-0": "jul", "generation-0": "old"}
    body = chat(messages=[{"role": "user", "content": "a prompt of more than one block " * 20}])
    async with running_proxy(kind=kind, cluster=cluster, profiles=profiles) as proxy:
        answers = [(await proxy.client.post(CHAT, json=body)).json() for _ in range(2)]
        usage = answers[1]["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert 0 < cached < usage["prompt_tokens"]
        assert usage == expected_usage(body, cached=cached)
        assert answers[0]["usage"] == expected_usage(body)
