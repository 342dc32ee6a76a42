"""Answers that the context worker completed, for a client that asked for a stream.

The first token can end an answer (a stop token, a tool call, a budget). `trtllm-serve disaggregated` then sends
a streaming client nothing but `[DONE]` (TRT#15027); here the answer becomes a complete stream, framed as the
workers frame theirs: a role event per choice (with their blank before the empty line), content events without
nulls, the finish reason on the last content event, usage if asked for, `[DONE]`.
"""

from typing import Any

import msgspec

from proxy.wire.answers import clean_answer
from proxy.wire.handoff import ContextAnswer, Outcome
from proxy.wire.sse import DONE, event

_encode = msgspec.json.encode

# Members of a completions choice that its stream events do not have.
_NOT_STREAMED = ("disaggregated_params", "context_logits")


def as_json(answer: ContextAnswer) -> bytes:
    """The answer for a client that did not ask for a stream: everything but the hand-off members."""
    return clean_answer(answer.body)


def as_stream(answer: ContextAnswer, *, chat: bool, include_usage: bool) -> bytes:
    """The answer as a complete event stream.

    Args:
        answer: with any outcome but `Outcome.HAND_OFF`.
        chat: which of the two shapes.
        include_usage: `stream_options.include_usage` of the client.
    """
    body: dict[str, Any] = msgspec.json.decode(clean_answer(answer.body))
    head = {
        "id": body.get("id"),
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": body.get("created"),
        "model": body.get("model"),
    }
    choices: list[dict[str, Any]] = body.get("choices") or []
    if not chat:
        events = [event(_encode({**head, "choices": [_text_choice(c)], "usage": None})) for c in choices]
    elif answer.outcome is Outcome.GIVEN_UP:
        events = [event(_encode({**head, "choices": [_delta_choice(c, role=True) for c in choices]}))]
    else:
        events = [_role_event(head, c) for c in choices]
        events += [event(_encode({**head, "choices": [_delta_choice(c)]})) for c in choices]
    if include_usage:
        events.append(event(_encode({**head, "choices": [], "usage": body.get("usage")})))
    return b"".join((*events, DONE))


def _role_event(head: dict[str, Any], choice: dict[str, Any]) -> bytes:
    role = (choice.get("message") or {}).get("role") or "assistant"
    delta = {"index": choice.get("index", 0), "delta": {"role": role}}
    return b"data: " + _encode({**head, "choices": [delta]}) + b" \n\n"


def _delta_choice(choice: dict[str, Any], *, role: bool = False) -> dict[str, Any]:
    message: dict[str, Any] = choice.get("message") or {}
    delta = {name: value for name, value in message.items() if value is not None}
    if not role:
        delta.pop("role", None)
    calls = delta.pop("tool_calls", None)
    if calls:
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(calls)]
    streamed = {"index": choice.get("index", 0), "delta": delta}
    for name in ("logprobs", "finish_reason", "stop_reason"):
        if choice.get(name) is not None:
            streamed[name] = choice[name]
    return streamed


def _text_choice(choice: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choice.items() if name not in _NOT_STREAMED}
