import json

import pytest
from wire_samples import dump, members

from proxy.wire.history import last_message
from proxy.wire.members import Members, split_object

SYSTEM = {"role": "system", "content": "be terse"}
USER = {"role": "user", "content": "Name one colour."}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXT = {"type": "text", "text": "hello"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    "messages",
    [
        [SYSTEM, USER],
        [SYSTEM, USER, {"role": "assistant", "content": "Blue"}, USER],
        [SYSTEM, {"role": "user", "content": [TEXT, TEXT]}],
        [{"role": "user", "content": []}, USER],
        [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "1"},
        ],
        [
            USER,
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "content": [TEXT], "tool_call_id": "c"},
        ],
        [{**SYSTEM, "tools": None}, USER],
        [{"role": "principle", "content": "x", "anything": {"type": "image_url"}}, USER],
        [{"role": "user", "content": 'a "type":"image_url" in text'}, USER],
        [{"role": "assistant", "content": "x", "prompt_token_ids": [1], "reasoning": "y"}, USER],
    ],
)
def test_cut(messages: list[object]) -> None:
    for more in ({}, {"echo": False}, {"echo": None}, {"tools": [1]}, {"add_generation_prompt": False}):
        last = last_message(members(messages=messages, **more))
        assert last is not None
        assert json.loads(bytes(last)) == messages[-1]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [{"role": "user", "content": [IMAGE]}, USER],
        [SYSTEM, {"role": "user", "content": [TEXT, IMAGE]}],
        [{"role": "user", "content": [{"type": "input_audio"}]}, USER],
        [{"role": "user", "content": [{"text": "no type"}]}, USER],
        [{"role": "user", "content": [{"type": None}]}, USER],
        [{"role": "user", "content": ["text"]}, USER],
        [{"role": "user", "content": {"type": "text"}}, USER],
        [{"role": "user", "content": 7}, USER],
        [{"role": "user", "content": True}, USER],
        [{**SYSTEM, "tools": [{"type": "function", "function": {"name": "f"}}]}, USER],
        [SYSTEM, "text"],
        [None, USER],
        "text",
        {"a": 1, "b": 2},
        None,
    ],
)
def test_keep(messages: object) -> None:
    assert last_message(members(messages=messages)) is None


@pytest.mark.parametrize("echo", [True, 1, 0, "false", [], {}])
def test_echo_keeps_the_history(echo: object) -> None:
    assert last_message(members(messages=[SYSTEM, USER], echo=echo)) is None


def test_no_messages() -> None:
    assert last_message({}) is None


def raw(messages: bytes) -> Members:
    return split_object(b'{"messages":' + messages + b"}")


def test_spelling_does_not_hide_a_part() -> None:
    image = b'[{"role":"user", "\\u0063ontent" : [ {"\\u0074ype" : "image\\u005furl"} ] } , {"role":"user"}]'
    assert last_message(raw(image)) is None
    text = b'[{"role":"user", "\\u0063ontent" : [ {"\\u0074ype" : "\\u0074ext"} ] } , {"role":"user"}]'
    assert last_message(raw(text)) is not None
    # of duplicates the last one counts, as for the workers
    assert last_message(raw(b'[{"content":"x","content":[{"type":"image_url"}]},{}]')) is None


def test_last_message_is_not_changed() -> None:
    last = last_message(raw(b'[ {"role":"user"} ,\n { "content" : "\xc3\xa9\\u00e9" } ] '))
    assert last is not None
    assert bytes(last) == b'{ "content" : "\xc3\xa9\\u00e9" }'


@pytest.mark.parametrize(
    "message",
    [
        b'{"content":[{"type":"\xff"}]}',
        b'{"content":[' + b"[" * 900 + b"]" * 900 + b"]}",
        dump([SYSTEM]),
        b'"\xff"',
    ],
)
def test_strange_messages_keep_the_history(message: bytes) -> None:
    assert last_message(raw(b"[" + message + b"," + dump(USER) + b"]")) is None
