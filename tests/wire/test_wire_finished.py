import json
from typing import Any

import pytest
from wire_samples import USAGE, chat_answer, dump, parameters

from proxy.wire.errors import MalformedJSON
from proxy.wire.finished import as_json, as_stream
from proxy.wire.handoff import read_context_answer

HEAD = {"id": "chatcmpl-1b2c", "object": "chat.completion.chunk", "created": 1764430000, "model": "m"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":"\u00e9"}'}}


def stream(answer: object, *, chat: bool = True, usage: bool = False) -> bytes:
    return as_stream(read_context_answer(dump(answer)), chat=chat, include_usage=usage)


def events(text: bytes) -> list[Any]:
    """Payloads; checks the framing: the role events of chat have a blank before the empty line."""
    assert text.endswith(b"\n\n")
    found: list[Any] = []
    for block in text[:-2].split(b"\n\n"):
        assert block.startswith(b"data: ")
        payload = block[6:]
        assert b"\n" not in payload
        if payload == b"[DONE]":
            found.append("[DONE]")
            continue
        decoded = json.loads(payload)
        delta = decoded["choices"][0].get("delta") if decoded["choices"] else None
        assert payload.endswith(b"} ") is (delta is not None and list(delta) == ["role"])
        found.append(decoded)
    return found


def test_json_is_cleaned() -> None:
    body = dump(chat_answer(finish_reason="stop"))
    cleaned = json.loads(as_json(read_context_answer(body)))
    assert "prompt_token_ids" not in cleaned
    assert "disaggregated_params" not in cleaned["choices"][0]
    assert cleaned["choices"][0]["message"]["content"] == "Blue"


def test_chat_as_bytes() -> None:
    assert stream(chat_answer(finish_reason="stop"), usage=True) == (
        b'data: {"id":"chatcmpl-1b2c","object":"chat.completion.chunk","created":1764430000,"model":"m",'
        b'"choices":[{"index":0,"delta":{"role":"assistant"}}]} \n\n'
        b'data: {"id":"chatcmpl-1b2c","object":"chat.completion.chunk","created":1764430000,"model":"m",'
        b'"choices":[{"index":0,"delta":{"content":"Blue","reasoning_content":""},"finish_reason":"stop"}]}\n\n'
        b'data: {"id":"chatcmpl-1b2c","object":"chat.completion.chunk","created":1764430000,"model":"m",'
        b'"choices":[],"usage":{"prompt_tokens":41,"total_tokens":42,"completion_tokens":1,'
        b'"prompt_tokens_details":{"cached_tokens":32}}}\n\n'
        b"data: [DONE]\n\n"
    )


def test_usage_only_if_asked_for() -> None:
    answer = chat_answer(finish_reason="stop")
    assert len(events(stream(answer))) == 3
    assert events(stream(answer, usage=True))[-2] == {**HEAD, "choices": [], "usage": USAGE}
    assert events(stream(chat_answer(finish_reason="stop", usage=...), usage=True))[-2]["usage"] is None


def test_tool_calls() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "reasoning": None,
        "tool_calls": [CALL, {**CALL, "id": "c2"}],
    }
    role, content, done = events(stream(chat_answer(finish_reason="tool_calls", message=message)))
    assert role["choices"] == [{"index": 0, "delta": {"role": "assistant"}}]
    assert content["choices"] == [
        {
            "index": 0,
            "delta": {"tool_calls": [{"index": 0, **CALL}, {"index": 1, **CALL, "id": "c2"}]},
            "finish_reason": "tool_calls",
        }
    ]
    assert done == "[DONE]"


def test_an_index_of_a_call_stays() -> None:
    message = {"role": "assistant", "tool_calls": [{"index": 5, **CALL}]}
    content = events(stream(chat_answer(finish_reason="tool_calls", message=message)))[1]
    assert content["choices"][0]["delta"]["tool_calls"] == [{"index": 5, **CALL}]


def test_reasoning_and_other_members_of_the_message() -> None:
    message = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "reasoning": "hm",
        "refusal": None,
    }
    content = events(stream(chat_answer(finish_reason="stop", message=message)))[1]
    assert content["choices"][0]["delta"] == {"content": "", "reasoning_content": "hm", "reasoning": "hm"}


def test_log_probabilities_and_stop_reason() -> None:
    answer = chat_answer(finish_reason="stop")
    probabilities = {"content": [{"token": "Blue", "logprob": -0.12345678901234567, "bytes": None}]}
    answer["choices"][0] |= {"logprobs": probabilities, "stop_reason": 2**53 + 1}
    content = events(stream(answer))[1]
    assert content["choices"][0]["logprobs"] == probabilities
    assert content["choices"][0]["stop_reason"] == 2**53 + 1


def test_several_choices() -> None:
    answer = chat_answer(finish_reason="stop")
    second = {"index": 1, "message": {"role": "tool", "content": "b"}, "finish_reason": "length"}
    answer["choices"].append(second)
    found = events(stream(answer))
    assert [event["choices"][0]["index"] for event in found[:-1]] == [0, 1, 0, 1]
    assert [event["choices"][0]["delta"].get("role") for event in found[:2]] == ["assistant", "tool"]
    assert found[3]["choices"] == [{"index": 1, "delta": {"content": "b"}, "finish_reason": "length"}]


@pytest.mark.parametrize("message", [None, {}, {"role": None}])
def test_without_a_message(message: object) -> None:
    role, content, _ = events(stream(chat_answer(finish_reason="stop", message=message)))
    assert role["choices"][0]["delta"] == {"role": "assistant"}
    assert content["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]


def test_little_known_about_the_answer() -> None:
    found = events(stream({"choices": [{"finish_reason": "stop"}]}))
    assert found[0] == {
        "id": None,
        "object": "chat.completion.chunk",
        "created": None,
        "model": None,
        "choices": [{"index": 0, "delta": {"role": "assistant"}}],
    }


@pytest.mark.parametrize("reason", [None, "timeout", "cancelled"])
def test_given_up_is_one_event(reason: str | None) -> None:
    answer = chat_answer(finish_reason=reason, params=None)
    event, done = events(stream(answer))
    delta = {"role": "assistant", "content": "Blue", "reasoning_content": ""}
    finish = {} if reason is None else {"finish_reason": reason}
    assert event == {**HEAD, "choices": [{"index": 0, "delta": delta, **finish}]}
    assert done == "[DONE]"
    assert len(events(stream(answer, usage=True))) == 3


@pytest.mark.parametrize("reason", ["stop", None, "timeout"])
def test_completions(reason: str | None) -> None:
    choice = {
        "index": 0,
        "text": " there\n",
        "token_ids": None,
        "logprobs": None,
        "context_logits": None,
        "finish_reason": reason,
        "stop_reason": None,
        "disaggregated_params": parameters(),
        "avg_decoded_tokens_per_iter": None,
    }
    answer = {"id": "cmpl-4", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    head = {"id": "cmpl-4", "object": "text_completion", "created": 1, "model": "m"}
    shown = {
        name: value
        for name, value in choice.items()
        if name not in ("context_logits", "disaggregated_params")
    }
    event, done = events(stream(answer, chat=False))
    assert event == {**head, "choices": [shown], "usage": None}
    assert done == "[DONE]"
    found = events(stream({**answer, "usage": USAGE}, chat=False, usage=True))
    assert found[1] == {**head, "choices": [], "usage": USAGE}


@pytest.mark.parametrize("message", ["x", [], 7, {"tool_calls": 7}, {"tool_calls": [7]}])
def test_messages_of_another_shape(message: object) -> None:
    with pytest.raises(MalformedJSON):
        stream(chat_answer(finish_reason="stop", message=message))
