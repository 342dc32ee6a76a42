"""Prompts become token ids in the proxy: what the context workers get, and what happens when they disagree."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from e2e_stack import Stack
from program import eventually

from proxy.sim.tokens import encode_ids, pack_ids
from proxy.tokenisation.shadow import WARM_UP

TOKENISATION = Path(__file__).parents[1] / "tokenisation"
sys.path.insert(0, str(TOKENISATION))
from tokenisation_cases import CASES  # noqa: E402

MakeStack = Callable[..., Stack]
MODEL = TOKENISATION / "models" / "qwen_like"
GOLDEN: dict[str, list[int]] = json.loads((MODEL / "golden.json").read_text())
BY_PROMPT = {
    json.dumps([body.get("messages"), body.get("prompt"), body.get("tools")]): GOLDEN[name]
    for name, body in CASES.items()
    if body.keys() <= {"messages", "prompt", "tools"} and name != "bundle"
}


def golden_ids(body: Mapping[str, Any]) -> list[int]:
    """A worker that tokenises as transformers does, for the requests of the golden file."""
    return BY_PROMPT[json.dumps([body.get("messages"), body.get("prompt"), body.get("tools")])]


def wrong_ids(body: Mapping[str, Any]) -> list[int]:
    return [*golden_ids(body)[:-1], 7]


def body_of(name: str) -> dict[str, Any]:
    return {"model": "sim", "max_tokens": 4, **CASES[name]}


def a_stack(make_stack: MakeStack, prompt_ids: Any = golden_ids, **more: Any) -> Stack:
    options = {"tokenizer": str(MODEL), "frontend_tokenisation": True, "tokenisation_shadow": 0.0, **more}
    return make_stack(cluster={"profile": "new", "prompt_ids": prompt_ids}, **options)


def compared(stack: Stack, result: str) -> float:
    return stack.metric("tokenisation_comparisons_total", result=result)


def warm_up(stack: Stack) -> None:
    """Until the proxy trusts its own ids."""
    done = compared(stack, "same")
    for number in range(WARM_UP):
        if done + number >= WARM_UP:
            break
        assert stack.post(body_of("tools")).status_code == 200
        eventually(lambda wanted=done + number + 1: compared(stack, "same") >= wanted, what="a comparison")
    for worker in stack.cluster.workers:
        worker.clear_records()


def test_a_prompt_goes_as_text_until_enough_have_been_compared(make_stack: MakeStack) -> None:
    stack = a_stack(make_stack)
    warm_up(stack)
    stack.post(body_of("tool_calls"))
    assert "prompt_token_ids_b64" in json.loads(stack.only_request("context").body or b"")
    assert compared(stack, "same") == WARM_UP
    assert compared(stack, "different") == 0
    assert stack.metric("tokenisation_on") == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["one_message", "tool_calls", "tools", "text"])
def test_the_context_worker_gets_the_ids(make_stack: MakeStack, name: str, stream: bool) -> None:
    stack = a_stack(make_stack)
    warm_up(stack)
    before = stack.metric("tokenisations_total", by="proxy")
    answer = stack.post({**body_of(name), "stream": stream})
    assert answer.status_code == 200
    prefill = json.loads(stack.only_request("context").body or b"")
    generate = json.loads(stack.only_request("generation").body or b"")
    ids = GOLDEN[name]
    if "messages" in prefill:
        assert (
            prefill["prompt_token_ids_b64"] == encode_ids(pack_ids(ids)) == generate["prompt_token_ids_b64"]
        )
        assert prefill["messages"] == CASES[name]["messages"]
    else:
        assert prefill["prompt"] == ids == generate["prompt"]
    assert stack.metric("tokenisations_total", by="proxy") == before + 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"echo": True}, "member"),
        (
            {"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
            "tool_choice",
        ),
        ({"chat_template_kwargs": {"nobody_reads_this": 1}}, "options"),
        ({"messages": [{"role": "martian", "content": "x"}]}, "template"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
                ]
            },
            "form",
        ),
    ],
)
def test_what_cannot_surely_be_reproduced_goes_as_text(
    make_stack: MakeStack, change: dict[str, Any], reason: str
) -> None:
    stack = a_stack(make_stack, prompt_ids=golden_or_other_ids)
    warm_up(stack)
    before = stack.metric("tokenisations_total", by="worker", reason=reason)
    answer = stack.post({**body_of("one_message"), **change})
    assert answer.status_code == 200, answer.text
    assert "prompt_token_ids_b64" not in json.loads(stack.only_request("context").body or b"")
    assert stack.metric("tokenisations_total", by="worker", reason=reason) == before + 1


def golden_or_other_ids(body: Mapping[str, Any]) -> list[int]:
    """As `golden_ids`, and something for all other requests."""
    try:
        return golden_ids(body)
    except KeyError:
        return [1, 2, 3]


def test_a_share_of_the_prompts_is_compared(make_stack: MakeStack) -> None:
    stack = a_stack(make_stack, tokenisation_shadow=1.0)
    before = compared(stack, "same")
    for number in range(WARM_UP + 2):
        stack.post(body_of("one_message"))
        eventually(lambda wanted=before + number + 1: compared(stack, "same") == wanted, what="a comparison")
    assert all(b',"prompt_token_ids_b64":' not in (each.body or b"") for each in stack.requests("context"))


def test_a_worker_that_tokenises_otherwise_switches_it_off(make_stack: MakeStack) -> None:
    stack = a_stack(make_stack, prompt_ids=wrong_ids)
    for number in (1, 2):
        stack.post(body_of("one_message"))
        eventually(lambda wanted=number: compared(stack, "different") == wanted, what="a comparison")
    assert stack.metric("tokenisation_on") == 0
    stack.post(body_of("one_message"))
    assert stack.metric("tokenisations_total", by="worker", reason="switched_off") == 1
    assert compared(stack, "different") == 2


def test_workers_that_do_not_know_the_ids_tokenise_chats(make_stack: MakeStack) -> None:
    options = {"tokenizer": str(MODEL), "frontend_tokenisation": True}
    stack = make_stack(cluster={"profile": "old"}, **options)
    assert stack.post(body_of("one_message")).status_code == 200
    assert stack.metric("tokenisations_total", by="worker", reason="version") == 1
