"""Answers that the context worker completed, for a client that asked for a stream.

The first token can end an answer (a stop token, a tool call, a budget). `trtllm-serve disaggregated` then sends
a streaming client nothing but `[DONE]` (TRT#15027); here the answer becomes a complete stream, framed as the
workers frame theirs: a role event per choice (with their blank before the empty line), content events without
nulls, the finish reason on the last content event, usage if asked for, `[DONE]`.
"""

from proxy.wire.answers import clean_answer
from proxy.wire.handoff import ContextAnswer, Outcome
from proxy.wire.members import (
    NULL,
    JSONBytes,
    Members,
    is_null,
    join_array,
    join_object,
    split_array,
    split_object,
)
from proxy.wire.sse import DONE, event

# Members of a completions choice that its stream events do not have.
_NOT_STREAMED = frozenset({"disaggregated_params", "context_logits"})


def as_json(answer: ContextAnswer) -> bytes:
    """The answer for a client that did not ask for a stream: everything but the hand-off members."""
    return clean_answer(answer.body)


def as_stream(answer: ContextAnswer, *, chat: bool, include_usage: bool) -> bytes:
    """The answer as a complete event stream.

    Args:
        answer: with any outcome but `Outcome.HAND_OFF`.
        chat: which of the two shapes.
        include_usage: `stream_options.include_usage` of the client.

    Raises:
        MalformedJSON: a message or a tool call is not an object.
    """
    body = split_object(answer.body)
    head: dict[str, JSONBytes] = {
        "id": body.get("id", NULL),
        "object": b'"chat.completion.chunk"' if chat else b'"text_completion"',
        "created": body.get("created", NULL),
        "model": body.get("model", NULL),
    }
    choices = [split_object(choice) for choice in split_array(body["choices"])]
    if not chat:
        payloads = [_payload(head, [_text_choice(choice)], usage=NULL) for choice in choices]
    elif answer.outcome is Outcome.GIVEN_UP:
        payloads = [_payload(head, [_delta_choice(choice, role=True) for choice in choices])]
    else:
        # The blank is the workers': clients that compare bytes see no difference.
        payloads = [_payload(head, [_role_choice(choice)]) + b" " for choice in choices]
        payloads += [_payload(head, [_delta_choice(choice)]) for choice in choices]
    if include_usage:
        payloads.append(_payload(head, [], usage=answer.usage))
    return b"".join([event(payload) for payload in payloads]) + DONE


def _payload(head: dict[str, JSONBytes], choices: list[bytes], **more: JSONBytes) -> bytes:
    return join_object({**head, "choices": join_array(choices), **more})


def _role_choice(choice: Members) -> bytes:
    role = _message(choice).get("role")
    delta = join_object({"role": b'"assistant"' if role is None or is_null(role) else role})
    return join_object({"index": choice.get("index", b"0"), "delta": delta})


def _delta_choice(choice: Members, *, role: bool = False) -> bytes:
    delta: dict[str, JSONBytes] = {
        name: value for name, value in _message(choice).items() if not is_null(value)
    }
    if not role:
        delta.pop("role", None)
    calls = delta.pop("tool_calls", None)
    if calls is not None and (numbered := _numbered_calls(calls)):
        delta["tool_calls"] = join_array(numbered)
    streamed: dict[str, JSONBytes] = {"index": choice.get("index", b"0"), "delta": join_object(delta)}
    for name in ("logprobs", "token_ids", "finish_reason", "stop_reason"):
        value = choice.get(name)
        if value is not None and not is_null(value):
            streamed[name] = value
    return join_object(streamed)


def _message(choice: Members) -> Members:
    message = choice.get("message")
    return {} if message is None or is_null(message) else split_object(message)


def _numbered_calls(calls: JSONBytes) -> list[bytes]:
    """Tool calls of a stream carry their index, those of a whole answer do not."""
    return [
        join_object({"index": b"%d" % number, **split_object(bytes(call))})
        for number, call in enumerate(split_array(bytes(calls)))
    ]


def _text_choice(choice: Members) -> bytes:
    return join_object({name: value for name, value in choice.items() if name not in _NOT_STREAMED})
