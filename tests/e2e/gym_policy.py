"""The part of NeMo Gym that talks to a policy endpoint: what it sends, what it reads back, what it makes of errors."""

from typing import Any, Literal, NamedTuple

import httpx

Verdict = Literal["retry", "retry a few times", "end of the rollout", "failure"]

_RETRIED = frozenset({429, 502, 503, 504, 520})
_ENDS = ("context length", "max_tokens")


class Turn(NamedTuple):
    """What training needs of one answer."""

    prompt_ids: list[int]
    generated_ids: list[int]
    logprobs: list[float]
    message: dict[str, Any]


def verdict(response: httpx.Response) -> Verdict:
    """What Gym does with an answer that is not 200."""
    if response.status_code in _RETRIED:
        return "retry"
    if response.status_code == 400 and any(words in response.text for words in _ENDS):
        return "end of the rollout"
    return "retry a few times" if response.status_code >= 500 else "failure"


def read_turn(answer: dict[str, Any]) -> Turn:
    """Read an answer as Gym does when it needs token ids. Raises `AssertionError` where Gym raises."""
    (choice,) = answer["choices"]
    prompt, generated = answer.get("prompt_token_ids"), choice.get("token_ids")
    assert (prompt is None) == (generated is None), "partial token metadata"
    content = choice["logprobs"]["content"]
    assert all(each["token"].startswith("token_id:") for each in content)
    named = [int(each["token"].removeprefix("token_id:")) for each in content]
    assert generated == named
    assert prompt is not None, "Gym would have to ask /tokenize"
    return Turn(prompt, named, [each["logprob"] for each in content], choice["message"])


def assistant_message(turn: Turn) -> dict[str, Any]:
    """The answer as it goes into the next request: with the ids of its turn, all or none."""
    return {
        "role": "assistant",
        "content": turn.message["content"],
        "reasoning_content": "kept",
        "reasoning": "kept",
        **({"tool_calls": turn.message["tool_calls"]} if turn.message.get("tool_calls") else {}),
        "prompt_token_ids": turn.prompt_ids,
        "generation_token_ids": turn.generated_ids,
        "generation_log_probs": turn.logprobs,
    }


def request(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A request of a training run with the shipped configuration."""
    return {
        "model": "sim",
        "messages": messages,
        "logprobs": True,
        "top_logprobs": 0,
        "return_tokens_as_token_ids": True,
        "metadata": {"chat_template_kwargs": "{}"},
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 64,
        **more,
    }
