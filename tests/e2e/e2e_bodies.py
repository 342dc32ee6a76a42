"""Request bodies, and what becomes of answers."""

import json
from typing import Any

from proxy.sim import expected_answers, prompt_token_ids

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def chat(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "be terse"}, {"role": "user", "content": "Name öne colour. 🙂"}]
    return {"model": "sim", "messages": messages, "max_tokens": 12, **fields}


def completion(**fields: Any) -> dict[str, Any]:
    return {"model": "sim", "prompt": "Once upon a tïme 🙂", "max_tokens": 12, **fields}


def dialect(profile: str) -> str:
    """`worker_dialect` for simulated workers of a profile."""
    return "nemo_rl" if profile == "nemo" else "trtllm"


def path_of(body: dict[str, Any]) -> str:
    return CHAT if "messages" in body else COMPLETIONS


def events(text: str) -> list[Any]:
    """The data of an event stream, parsed; [DONE] as text."""
    frames = text.replace(" \n\n", "\n\n").split("\n\n")
    assert frames.pop() == "", "the stream ends within an event"
    data = [frame.removeprefix("data: ") for frame in frames]
    return [item if item == "[DONE]" else json.loads(item) for item in data]


def streamed_text(text: str) -> str:
    """The text of a complete stream of either route."""
    shown = events(text)
    assert shown[-1] == "[DONE]"
    pieces = []
    for event in shown[:-1]:
        for choice in event["choices"]:
            pieces.append(choice["text"] if "text" in choice else choice["delta"].get("content") or "")
    return "".join(pieces)


def answer_text(answer: dict[str, Any]) -> str:
    """The text of a whole answer of either route."""
    choice = answer["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def expected_usage(body: dict[str, Any], *, cached: int = 0) -> dict[str, Any]:
    prompt, completion = len(prompt_token_ids(body)), len(expected_answers(body)[0].token_ids)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
