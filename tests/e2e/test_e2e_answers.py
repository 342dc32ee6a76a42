"""Both legs with every worker version, route, form of answer and form of token ids."""

import json
from typing import NamedTuple

import msgspec
import pytest
from e2e_bodies import answer_text, chat, completion, expected_usage, path_of, streamed_text
from e2e_bodies import events as events_of

from proxy.sim import expected_answers, expected_text, prompt_token_ids
from proxy.sim.profiles import PROFILES
from proxy.sim.tokens import encode_ids, prompts_of


class Case(NamedTuple):
    profile: str
    route: str
    ids: str  # the form in which the context worker sends them


CASES = [
    Case("old", "chat", "none"),
    Case("old", "completions", "array"),
    Case("jul", "chat", "base64"),
    Case("jul", "chat", "array"),
    Case("jul", "completions", "array"),
    Case("new", "chat", "base64"),
    Case("new", "chat", "array"),
    Case("new", "completions", "array"),
]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
def case(request):
    return request.param


@pytest.fixture
def stack(make_stack, case):
    return make_stack({"profile": case.profile}, gen_tokids_ctxbytes=case.ids == "base64")


def body_of(case, **fields):
    return chat(**fields) if case.route == "chat" else completion(**fields)


def check_generation_leg(stack, case, body):
    """The token ids travel exactly as the context worker has sent them, and so does the hand-off."""
    leg, context = stack.only_request("generation"), stack.only_request("context").json()
    sent = leg.json()
    ids = prompt_token_ids(body)
    array = msgspec.json.encode(ids)
    if case.route == "completions":
        assert b'"prompt":' + array in leg.body
    elif case.ids == "none":
        assert not sent.keys() & {"prompt_token_ids", "prompt_token_ids_b64"}
    elif case.ids == "array":
        assert b'"prompt_token_ids":' + array in leg.body
        assert "prompt_token_ids_b64" not in sent
    else:
        assert sent["prompt_token_ids_b64"] == encode_ids(prompts_of(body)[0])
        assert "prompt_token_ids" not in sent
    if case.route == "chat":
        assert sent["messages"] == body["messages"]
    params, asked = sent["disaggregated_params"], context["disaggregated_params"]
    assert set(params) == set(PROFILES[case.profile].disaggregated_keys)
    assert params["request_type"] == "generation_only"
    assert params["disagg_request_id"] == params["ctx_request_id"] == asked["disagg_request_id"] > 1 << 40
    assert params["first_gen_tokens"]
    if case.profile != "old":
        assert params["ctx_usage"]["prompt_tokens"] == len(ids)
        assert params["schedule_style"] == asked["schedule_style"] == 0
    else:
        assert asked.keys() == {"request_type", "disagg_request_id"}


def test_not_streamed(stack, case):
    body = body_of(case, temperature=0.5)
    response = stack.post(body)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert answer_text(answer) == expected_text(body)
    assert answer["usage"] == expected_usage(body)
    assert answer["choices"][0]["finish_reason"] == expected_answers(body)[0].finish_reason
    assert not answer.keys() & {"disaggregated_params", "prompt_token_ids", "prompt_token_ids_b64"}
    assert "disaggregated_params" not in answer["choices"][0]
    context = stack.only_request("context")
    assert context.path == path_of(body)
    sent = context.json()
    params = sent.pop("disaggregated_params")
    assert params["request_type"] == "context_only"
    assert sent == {**body, "stream": False}
    check_generation_leg(stack, case, body)


@pytest.mark.parametrize("usage", [False, True], ids=["no-usage", "usage"])
def test_streamed(stack, case, usage):
    body = body_of(case, stream=True)
    if usage:
        body["stream_options"] = {"include_usage": True}
    response = stack.post(body)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert streamed_text(response.text) == expected_text(body)
    events = events_of(response.text)
    if case.route == "chat":
        # The workers' own framing: a blank before the empty line of the role event.
        first, _, _ = response.text.partition("\n\n")
        assert first.endswith('"delta":{"role":"assistant"}}]} ')
    counted = [event["usage"] for event in events[:-1] if event.get("usage")]
    assert counted == ([expected_usage(body)] if usage else [])
    check_generation_leg(stack, case, body)
    context = stack.only_request("context").json()
    assert context["stream"] is False
    assert context.get("stream_options") is None
    assert stack.only_request("generation").json()["stream"] is True


def test_usage_in_every_event(make_stack):
    stack = make_stack()
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = chat(stream=True, stream_options=options)
    events = events_of(stack.post(body).text)
    assert [event["usage"]["completion_tokens"] for event in events[:-1]] == [*range(13), 12]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_no_ids_from_a_worker_that_could_send_them(make_stack, stream):
    stack = make_stack(gen_tokids_ctxbytes=True)
    stack.cluster.context_workers[0].add_fault(kind="missing_ids", count=1)
    body = chat(stream=stream)
    response = stack.post(body)
    text = streamed_text(response.text) if stream else answer_text(response.json())
    assert text == expected_text(body)
    assert not stack.only_request("generation").json().keys() & {"prompt_token_ids", "prompt_token_ids_b64"}


@pytest.mark.parametrize("base64", [False, True], ids=["array", "base64"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_prompt_of_forty_thousand_tokens(make_stack, base64, stream):
    stack = make_stack(gen_tokids_ctxbytes=base64)
    body = chat(stream=stream)
    body["messages"][1]["content"] = "äbc " * 40_000
    response = stack.post(body)
    text = streamed_text(response.text) if stream else answer_text(response.json())
    assert text == expected_text(body)


@pytest.mark.parametrize("prompt", ["plain", ["in a list"], [5, 6, 7], [[5, 6, 7]]], ids=str)
@pytest.mark.parametrize("profile", ["old", "jul", "new"])
def test_forms_of_a_completions_prompt(make_stack, profile, prompt):
    stack = make_stack({"profile": profile})
    body = completion(prompt=prompt)
    response = stack.post(body)
    assert response.status_code == 200
    assert answer_text(response.json()) == expected_text(body)


def test_logprobs_tools_and_reasoning_come_through(make_stack):
    stack = make_stack()
    body = chat(logprobs=True, top_logprobs=2)
    choice = stack.post(body).json()["choices"][0]
    assert [len(entry["top_logprobs"]) for entry in choice["logprobs"]["content"]] == [2] * 12
    body = chat()
    body["messages"][1]["content"] = "[sim:think] why?"
    message = stack.post(body).json()["choices"][0]["message"]
    assert message["content"] == expected_text(body)
    assert message["reasoning_content"]


def test_a_budget_of_one_token_takes_both_legs(stack, case):
    body = body_of(case, max_tokens=1)
    answer = stack.post(body).json()
    assert answer_text(answer) == expected_text(body)
    assert answer["usage"]["completion_tokens"] == 1
    check_generation_leg(stack, case, body)


def test_a_body_with_escapes_and_blanks(stack, case):
    body = body_of(case)
    text = json.dumps(body, indent=2, ensure_ascii=True).encode()
    response = stack.http.post(path_of(body), content=text, headers={"content-type": "application/json"})
    assert answer_text(response.json()) == expected_text(body)
