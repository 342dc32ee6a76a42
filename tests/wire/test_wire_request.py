import json

import msgspec
import pytest
from wire_samples import dump, members

from proxy.wire.errors import InvalidField
from proxy.wire.members import split_object
from proxy.wire.request import read_request, single_prompt

USER = [{"role": "user", "content": "x"}]


def test_chat() -> None:
    request = read_request(members(model="m\u00e9", messages=USER, temperature=0.5), chat=True)
    assert (request.model, request.chat, request.stream, request.include_usage) == (
        "m\u00e9",
        True,
        False,
        False,
    )
    assert list(request.members) == ["model", "messages", "temperature"]


def test_completions() -> None:
    request = read_request(split_object(b'{"model":"a\\u0062", "prompt": "x" }'), chat=False)
    assert (request.model, request.chat) == ("ab", False)
    assert bytes(request.members["prompt"]) == b'"x"'


@pytest.mark.parametrize(
    ("options", "stream", "usage"),
    [
        ({}, False, False),
        ({"stream": None}, False, False),
        ({"stream": False}, False, False),
        ({"stream": True}, True, False),
        ({"stream": True, "stream_options": None}, True, False),
        ({"stream": True, "stream_options": {}}, True, True),
        (
            {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
            True,
            True,
        ),
        ({"stream": True, "stream_options": {"include_usage": False}}, True, False),
        ({"stream": True, "stream_options": {"include_usage": None}}, True, False),
        ({"stream": False, "stream_options": {"include_usage": True}}, False, False),
        ({"stream_options": 7}, False, False),
    ],
)
def test_stream(options: dict[str, object], stream: bool, usage: bool) -> None:
    request = read_request(members(model="m", messages=USER, **options), chat=True)
    assert (request.stream, request.include_usage) == (stream, usage)


@pytest.mark.parametrize(
    "options",
    [
        {"n": 1},
        {"n": None},
        {"best_of": 1, "n": 1},
        {"use_beam_search": False},
        {"use_beam_search": None},
        {"n": 0},  # for the worker to refuse
    ],
)
def test_one_answer(options: dict[str, object]) -> None:
    assert read_request(members(model="m", messages=USER, **options), chat=True)


@pytest.mark.parametrize(
    ("options", "param", "code"),
    [
        ({"model": ...}, "model", "missing_required_parameter"),
        ({"model": None}, "model", "missing_required_parameter"),
        ({"model": 7}, "model", "invalid_type"),
        ({"model": ["m"]}, "model", "invalid_type"),
        ({"messages": ...}, "messages", "missing_required_parameter"),
        ({"messages": None}, "messages", "missing_required_parameter"),
        ({"messages": "x"}, "messages", "invalid_type"),
        ({"messages": {}}, "messages", "invalid_type"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"stream": "true"}, "stream", "invalid_type"),
        ({"stream": 1}, "stream", "invalid_type"),
        ({"stream": True, "stream_options": []}, "stream_options", "invalid_type"),
        ({"stream": True, "stream_options": {"include_usage": "x"}}, "stream_options", "invalid_type"),
        ({"n": 2}, "n", "unsupported_value"),
        ({"n": -1}, "n", "unsupported_value"),
        ({"n": 10**30}, "n", "unsupported_value"),
        ({"n": "1"}, "n", "invalid_type"),
        ({"n": 1.5}, "n", "invalid_type"),
        ({"n": True}, "n", "invalid_type"),
        ({"best_of": 2}, "best_of", "unsupported_value"),
        ({"use_beam_search": True}, "use_beam_search", "unsupported_value"),
        ({"use_beam_search": 1}, "use_beam_search", "invalid_type"),
    ],
)
def test_refused(options: dict[str, object], param: str, code: str) -> None:
    body = {
        name: value for name, value in {"model": "m", "messages": USER, **options}.items() if value is not ...
    }
    with pytest.raises(InvalidField) as error:
        read_request(members(**body), chat=True)
    assert (error.value.param, error.value.code) == (param, code)
    assert param in error.value.message


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"\xff","messages":[1]}',
        b'{"model":"m","messages":[1],"n":1' + b"0" * 5000 + b"}",
        b'{"model":"m","messages":[ \n ]}',
    ],
)
def test_refused_bytes(body: bytes) -> None:
    with pytest.raises(InvalidField):
        read_request(split_object(body), chat=True)


def test_nesting_that_only_the_split_could_bear() -> None:
    body = members(model="m", messages=USER, stream=True)
    body["stream_options"] = msgspec.Raw(b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}")
    with pytest.raises(InvalidField):
        read_request(body, chat=True)


@pytest.mark.parametrize("prompt", [..., None])
def test_prompt_is_required(prompt: object) -> None:
    body = {"model": "m"} if prompt is ... else {"model": "m", "prompt": prompt}
    with pytest.raises(InvalidField) as error:
        read_request(members(**body), chat=False)
    assert (error.value.param, error.value.code) == ("prompt", "missing_required_parameter")


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (b'"x"', b'"x"'),
        (b'""', b'""'),
        (b"[1,2]", b"[1,2]"),
        (b"[ -1 ]", b"[ -1 ]"),
        (b"[" + b" \n\t\r" * 20 + b"1, 2]", b"[" + b" \n\t\r" * 20 + b"1, 2]"),
        (b'["x"]', b'"x"'),
        (b'[ "x" ]', b'"x"'),
        (b"[[1,2]]", b"[1,2]"),
        (b"[ [ 1 , 2 ] ]", b"[ 1 , 2 ]"),
        (dump([list(range(100_000))]), dump(list(range(100_000)))),
    ],
)
def test_single_prompt(prompt: bytes, expected: bytes) -> None:
    assert bytes(single_prompt(msgspec.Raw(prompt))) == expected
    request = read_request(split_object(b'{"model":"m","prompt":' + prompt + b"}"), chat=False)
    assert json.loads(bytes(request.members["prompt"])) == json.loads(expected)


@pytest.mark.parametrize(
    "prompt",
    [
        b"[]", b"[ ]", b'["x","y"]', b"[[1],[2]]", b"[[]]", b'[["x"]]', b"[[[1]]]", b"7", b"true", b"{}", b"[{}]",
        b"[null]",
    ],
)  # fmt: skip
def test_not_a_single_prompt(prompt: bytes) -> None:
    with pytest.raises(InvalidField) as error:
        single_prompt(msgspec.Raw(prompt))
    assert error.value.param == "prompt"
