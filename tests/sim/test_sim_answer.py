import json
from typing import Any

import pytest
from sim_client import chat, completion

from proxy.sim import expected_answers, expected_text
from proxy.sim.answer import FIRST_WORD_ID, VOCABULARY, natural_length, words
from proxy.sim.instance import instance_of

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}


def only(body: dict[str, Any]) -> Any:
    (answer,) = expected_answers(body)
    return answer


def test_the_vocabulary_has_distinct_words_some_of_them_beyond_ascii() -> None:
    assert len(set(VOCABULARY)) == 256
    assert sum(not word.isascii() for word in VOCABULARY) > 50


def test_budget() -> None:
    answer = only(completion(max_tokens=3))
    assert len(answer.token_ids) == len(answer.pieces) == 3
    assert answer.finish_reason == "length"
    assert "".join(answer.pieces) == expected_text(completion(max_tokens=3))


def test_natural_end_and_ignore_eos() -> None:
    answer = only(completion(max_tokens=1000))
    assert answer.finish_reason == "stop"
    assert 8 <= len(answer.token_ids) < 33
    assert only(completion(max_tokens=None)) == answer
    longer = only(completion(max_tokens=1000, ignore_eos=True))
    assert (len(longer.token_ids), longer.finish_reason) == (1000, "length")
    assert longer.token_ids[: len(answer.token_ids)] == answer.token_ids
    assert len(only(completion(max_tokens=1000, min_tokens=50)).token_ids) == 50
    exact = only(completion(max_tokens=len(answer.token_ids)))
    assert exact.finish_reason == "stop"


def test_both_names_of_the_budget() -> None:
    assert len(only({**chat(), "max_tokens": 4}).token_ids) == 4
    body = chat(max_completion_tokens=4)
    del body["max_tokens"]
    assert len(only(body).token_ids) == 4


def test_choices_share_the_first_token_only() -> None:
    first, second = expected_answers(completion(n=2, max_tokens=5))
    assert first.token_ids[0] == second.token_ids[0]
    assert first.token_ids[1:] != second.token_ids[1:]


def test_words_repeat_only_after_the_whole_vocabulary() -> None:
    pieces, ids = words(12345, 256, 0)
    assert len(set(pieces)) == 256
    assert min(ids) == FIRST_WORD_ID
    assert 8 <= natural_length(0xFFFFFFFF) < 33


@pytest.mark.parametrize("keep", [False, True])
def test_stop_text(keep: bool) -> None:
    whole = only(completion(max_tokens=8))
    stop = whole.pieces[2][2:] + whole.pieces[3][:3]  # spans two tokens
    answer = only(completion(max_tokens=8, stop=["never", stop], include_stop_str_in_output=keep))
    assert answer.finish_reason == "stop"
    assert answer.stop_reason == stop
    assert len(answer.token_ids) == 4
    assert answer.text == whole.text[: whole.text.index(stop) + (len(stop) if keep else 0)]


def test_stop_token() -> None:
    whole = only(completion(max_tokens=8))
    answer = only(completion(max_tokens=8, stop_token_ids=[whole.token_ids[2]]))
    assert answer.stop_reason == whole.token_ids[2]
    assert answer.text == "".join(whole.pieces[:2])
    assert len(answer.token_ids) == 3


def test_reasoning() -> None:
    answer = only(chat(chat_template_kwargs={"enable_thinking": True}, max_tokens=6))
    assert answer.reasoning == "".join(answer.pieces[:4])
    assert answer.text == "".join(answer.pieces[4:])
    assert only(chat(thinking={"type": "enabled"})).reasoning_tokens == 4
    assert only(chat(messages=[{"role": "user", "content": "[sim:think]"}])).reasoning_tokens == 4


def test_tool_calls() -> None:
    named = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", named):
        answer = only(chat(tools=[WEATHER], tool_choice=choice, max_tokens=100))
        assert answer.finish_reason == "tool_calls"
        assert answer.text == ""
        assert answer.tool_call.name == "weather"
        assert json.loads(answer.tool_call.arguments) == {"city": "grün", "days": 3}
    assert only(chat(tools=[WEATHER])).tool_call is None
    assert (
        only(chat(tools=[WEATHER], messages=[{"role": "user", "content": "[sim:tool]"}])).tool_call
        is not None
    )
    assert only(chat(tools=[WEATHER], tool_choice="required", max_tokens=2)).finish_reason == "length"


def test_structured_answers() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x"]}, "b": {"type": "array", "items": {"const": 1}}},
    }
    answer = only(
        chat(response_format={"type": "json_schema", "json_schema": {"schema": schema}}, max_tokens=50)
    )
    assert json.loads(answer.text) == {"a": "x", "b": [1]}
    assert json.loads(expected_text(completion(response_format={"type": "json_object"}, max_tokens=50)))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"anyOf": [{"type": "null"}]}, None),
        ({"type": ["integer", "null"], "minimum": 7}, 7),
        ({"type": "boolean"}, True),
        ({"type": "array", "minItems": 2, "items": {"type": "number"}}, [2.5, 2.5]),
        ({"properties": {"p": {"type": "string"}}}, {"p": "grün"}),
    ],
)
def test_instances(schema: dict[str, Any], value: Any) -> None:
    assert instance_of(schema) == value


def test_endless_schemas_end() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    schema["properties"]["self"] = schema
    assert instance_of(schema)
