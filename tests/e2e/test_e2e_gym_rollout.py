"""Rollouts of NeMo Gym through the proxy to NeMo-RL's workers: ids that continue each other, errors that keep their
meaning."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from e2e_stack import Stack
from gym_policy import Turn, assistant_message, read_turn, request, verdict

MakeStack = Callable[..., Stack]

TURNS = 60
TOKENS = 30_000
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}
ORACLE = {"role": "system", "content": "You repair programs. " + "Think before you act. " * 20}


@pytest.fixture
def nemo(make_stack: MakeStack) -> Stack:
    return make_stack(cluster={"profile": "nemo", "context": 2, "generation": 2}, worker_dialect="nemo_rl")


def said(number: int) -> str:
    """What the environment says: 1,900 bytes, which are some 475 tokens."""
    words = f"Turn {number}: naïve 東京 🙂 "
    return words + "x" * (1900 - len(words.encode()))


def next_messages(number: int, last: Turn | None) -> list[dict[str, Any]]:
    """The environment's part of a turn: a tool's result if a tool was called, and every other turn a task for one."""
    calls = last.message.get("tool_calls") if last is not None else None
    messages: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": call["id"], "content": said(number)} for call in calls or ()
    ]
    task = " [sim:tool]" if number % 2 else " go on"
    return [*messages, {"role": "user", "content": (task if messages else said(number) + task)}]


def test_sixty_turns_with_ids_that_continue_each_other(nemo: Stack) -> None:
    messages: list[dict[str, Any]] = [ORACLE]
    seen: list[int] = []
    last: Turn | None = None
    tools = 0
    for number in range(TURNS):
        messages += next_messages(number, last)
        response = nemo.post(
            request(messages, tools=[TOOL], conversation_params={"conversation_id": "rollout"})
        )
        assert response.status_code == 200, response.text
        assert "x-disagg-proxy-dropped" not in response.headers
        last = read_turn(response.json())
        assert last.generated_ids
        assert last.prompt_ids[: len(seen)] == seen, f"turn {number} does not continue the ones before"
        assert len(last.prompt_ids) > len(seen)
        assert response.json()["usage"]["prompt_tokens"] == len(last.prompt_ids)
        seen = last.prompt_ids + last.generated_ids
        tools += bool(last.message.get("tool_calls"))
        messages.append(assistant_message(last))
    assert len(seen) > TOKENS
    assert tools >= TURNS // 2 - 1
    # The workers got the ids of all turns, as they came.
    for leg in ("context", "generation"):
        bodies = [each.body for each in nemo.requests(leg) if each.body is not None]
        assert bodies
        sent = json.loads(bodies[-1])["messages"]
        assert sent == messages[: len(sent)]
    assert len(nemo.requests("context")) == len(nemo.requests("generation")) == TURNS


def test_a_rollout_without_the_turns_ids_would_not_continue(nemo: Stack) -> None:
    """The check above can fail: without its ids a turn is tokenised again, and the tokens drift."""
    messages = [ORACLE, {"role": "user", "content": "Go"}]
    first = read_turn(nemo.post(request(messages)).json())
    stripped = {"role": "assistant", "content": first.message["content"]}
    again = read_turn(nemo.post(request([*messages, stripped, {"role": "user", "content": "On"}])).json())
    seen = first.prompt_ids + first.generated_ids
    assert again.prompt_ids[: len(seen)] != seen


def envelope(message: str) -> str:
    return json.dumps(
        {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
    )


def test_a_prompt_that_is_too_long_ends_the_rollout(make_stack: MakeStack) -> None:
    stack = make_stack(cluster={"profile": "nemo", "max_sequence": 300}, worker_dialect="nemo_rl")
    response = stack.post(request([{"role": "user", "content": said(0)}]))
    assert (response.status_code, verdict(response)) == (400, "end of the rollout")
    assert "the prompt exceeds the context length" in response.json()["message"]
    assert response.json().keys() == json.loads(envelope("")).keys()


@pytest.mark.parametrize("leg", ["context", "generation"])
@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (400, envelope("This model's maximum context length is 4096 tokens"), "end of the rollout"),
        (400, envelope("max_tokens must be at least 1"), "end of the rollout"),
        (400, envelope("tool_calls[0] is not valid"), "failure"),
        (404, '{"detail":"Not Found"}', "failure"),
        (422, '{"detail": [ 1 ]}', "failure"),
        (500, envelope("CUDA error"), "retry a few times"),
    ],
)
def test_errors_of_workers_keep_status_and_words(
    nemo: Stack, leg: str, status: int, text: str, expected: str
) -> None:
    for worker in nemo.cluster.workers:
        worker.add_fault(kind="status", status=status, body=text, leg=leg)
    nemo.most_leftover = 2  # a hand-off that a failing worker was given
    response = nemo.post(request([{"role": "user", "content": "Go"}]))
    assert (response.status_code, response.text) == (status, text)
    assert verdict(response) == expected


@pytest.mark.parametrize("leg", ["context", "generation"])
@pytest.mark.parametrize("status", [429, 503])
def test_workers_that_are_busy_are_asked_again(nemo: Stack, leg: str, status: int) -> None:
    for worker in nemo.cluster.workers:
        worker.add_fault(kind="status", status=status, body='{"error": "busy"}', leg=leg)
    nemo.most_leftover = 2
    response = nemo.post(request([{"role": "user", "content": "Go"}]))
    assert response.status_code == status
    assert verdict(response) == "retry"


def test_no_worker_is_no_failure_of_the_sample(make_stack: MakeStack) -> None:
    stack = make_stack(cluster={"profile": "nemo"}, worker_dialect="nemo_rl", max_retries=0)
    for worker in stack.cluster.workers:
        worker.add_fault(kind="disconnect")
    response = stack.post(request([{"role": "user", "content": "Go"}]))
    assert (response.status_code, verdict(response)) == (502, "retry")


def test_a_request_that_the_proxy_refuses_is_the_samples_failure(nemo: Stack) -> None:
    response = nemo.post(request([]))
    assert (response.status_code, verdict(response)) == (400, "failure")
    response = nemo.post({**request([{"role": "user", "content": "Go"}]), "prompt_logprobs": 5})
    assert (response.status_code, verdict(response)) == (400, "failure")
