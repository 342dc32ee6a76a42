import json
from typing import Any

import msgspec
import pytest
from wire_samples import dump

from proxy.wire.choices import MergedStream, Wanted, members_for_one, merged_answer, wanted_choices
from proxy.wire.errors import InvalidField, MalformedJSON
from proxy.wire.members import split_object

TWO = Wanted(2, 2, False)


@pytest.mark.parametrize(
    ("members", "wanted"),
    [
        ({"n": 3}, (3, 3, False)),
        ({"n": None, "best_of": None}, (1, 1, False)),
        ({"best_of": 4}, (1, 4, False)),
        ({"n": 2, "best_of": 4, "logprobs": 1}, (2, 4, True)),
        ({"n": 2, "logprobs": True}, (2, 2, True)),
        ({"n": 2, "logprobs": False}, (2, 2, False)),
        ({"n": 2, "logprobs": 0}, (2, 2, False)),
        ({"n": 2, "best_of": 2, "stream": True}, (2, 2, False)),
    ],
)
def test_wanted_choices(members: dict[str, Any], wanted: tuple[int, int, bool]) -> None:
    assert wanted_choices(split_object(dump(members))) == wanted


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": -1}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": "2"}, "n"),
        ({"n": True}, "n"),
        ({"best_of": 0}, "best_of"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"n": 1, "best_of": 2, "stream": True}, "best_of"),
    ],
)
def test_what_cannot_be_made(members: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as refused:
        wanted_choices(split_object(dump(members)))
    assert refused.value.param == param


def test_each_request_has_a_seed_of_its_own() -> None:
    members = split_object(b'{"model":"m","n":3,"best_of":3,"seed":9007199254740993}')
    made = [members_for_one(members, number, Wanted(3, 3, False), chat=True) for number in range(3)]
    assert [{name: bytes(value) for name, value in each.items()} for each in made] == [
        {"model": b'"m"', "seed": b"%d" % (9007199254740993 + number)} for number in range(3)
    ]
    odd = members_for_one(split_object(b'{"seed":"x"}'), 1, TWO, chat=True)
    assert bytes(odd["seed"]) == b'"x"', "for the workers to refuse"
    assert "n" in members, "not changed"


@pytest.mark.parametrize(("chat", "asks"), [(True, b"true"), (False, b"1")])
def test_log_probabilities_are_asked_for_to_find_the_best(chat: bool, asks: bytes) -> None:
    members = split_object(b'{"best_of":2}')
    assert bytes(members_for_one(members, 0, Wanted(1, 2, False), chat=chat)["logprobs"]) == asks
    assert "logprobs" not in members_for_one(members, 0, TWO, chat=chat)
    own = split_object(b'{"best_of":2,"logprobs":3}')
    assert bytes(members_for_one(own, 0, Wanted(1, 2, True), chat=chat)["logprobs"]) == b"3"


def answer(text: str, tokens: int, logprobs: Any = None, **more: Any) -> bytes:
    usage = {
        "prompt_tokens": 7,
        "total_tokens": 7 + tokens,
        "completion_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": "stop"}
    return dump({"id": f"cmpl-{text}", "choices": [choice], "usage": usage, **more})


def test_merged_answer() -> None:
    merged = json.loads(merged_answer([answer("a", 3), answer("b", 5)], TWO))
    assert merged == {
        "id": "cmpl-a",
        "choices": [
            {"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop"},
            {"index": 1, "text": "b", "logprobs": None, "finish_reason": "stop"},
        ],
        "usage": {
            "prompt_tokens": 7,
            "total_tokens": 15,
            "completion_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }


def test_an_answer_without_usage() -> None:
    body = dump({"choices": [{"index": 0, "text": "a"}]})
    assert json.loads(merged_answer([body, body], TWO)) == {
        "choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "a"}]
    }


@pytest.mark.parametrize(
    "logprobs",
    [
        lambda numbers: {"token_logprobs": numbers},
        lambda numbers: {"content": [{"token": "t", "logprob": number} for number in numbers]},
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_the_best_are_those_with_the_highest_mean(logprobs: Any, asked: bool) -> None:
    """Not the highest sum, which would prefer short ones (OpenAI's API on `best_of`)."""
    bodies = [
        answer("short", 1, logprobs([-1.0])),
        answer("long", 4, logprobs([-0.5] * 4)),
        answer("worst", 1, logprobs([-2.0])),
    ]
    merged = json.loads(merged_answer(bodies, Wanted(2, 3, asked)))
    assert [(choice["index"], choice["text"]) for choice in merged["choices"]] == [(0, "long"), (1, "short")]
    assert all((choice["logprobs"] is not None) is asked for choice in merged["choices"])
    assert merged["usage"]["completion_tokens"] == 6, "all that were made"


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b'{"object":"error"}',
        b'{"choices":null}',
        b'{"choices":[]}',
        b'{"choices":[1]}',
        b'{"choices":[],"usage":[]}',
        b'{"choices":[],"usage":{"completion_tokens":"3"}}',
    ],
)
def test_no_answers(body: bytes) -> None:
    with pytest.raises(MalformedJSON):
        merged_answer([body, body], TWO)


@pytest.mark.parametrize("logprobs", [None, {}, {"token_logprobs": [None]}, {"content": [{}]}])
def test_the_best_cannot_be_found_without_log_probabilities(logprobs: Any) -> None:
    with pytest.raises(MalformedJSON, match="log probabilities"):
        merged_answer([answer("a", 1, logprobs)] * 2, Wanted(1, 2, False))


def chunk(identifier: str, text: str | None, **more: Any) -> bytes:
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}}]
    members = {"id": identifier, "created": len(identifier), "model": "m", "choices": choices, **more}
    return b"data: " + msgspec.json.encode(members) + b"\n\n"


def test_merged_stream() -> None:
    stream = MergedStream()
    sent = stream.event(1, chunk("x", "one")) + stream.event(0, chunk("yy", "two", usage=None))
    shown = [json.loads(event.removeprefix(b"data: ")) for event in sent.split(b"\n\n")[:-1]]
    assert [event["id"] for event in shown] == ["x", "x"]
    assert [event["created"] for event in shown] == [1, 1]
    assert [event["choices"][0]["index"] for event in shown] == [1, 0]
    assert [event["choices"][0]["delta"]["content"] for event in shown] == ["one", "two"]
    for number, tokens in ((0, 3), (1, 4)):
        usage = {"prompt_tokens": 9, "total_tokens": 9 + tokens, "completion_tokens": tokens}
        assert stream.event(number, chunk("z", None, usage=usage)) == b""
        assert stream.event(number, b"data: [DONE]\n\n") == b""
    usage_event, done, rest = stream.end().split(b"\n\n")
    told = json.loads(usage_event.removeprefix(b"data: "))
    assert told["usage"] == {"prompt_tokens": 9, "total_tokens": 16, "completion_tokens": 7}
    assert told["choices"] == []
    assert told["id"] == "x"
    assert (done, rest) == (b"data: [DONE]", b"")


def test_a_stream_without_usage_ends_with_done_alone() -> None:
    stream = MergedStream()
    stream.event(0, chunk("x", "a"))
    assert stream.end() == b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "event",
    [
        b": keep-alive\n\n",
        b'data: {"error":{"message":"m"}}\n\n',
        b"data: x\n\n",
        b'data: {"choices":[1]}\n\n',
    ],
)
def test_what_is_no_choice_passes(event: bytes) -> None:
    assert MergedStream().event(1, event) == event


def test_other_lines_of_an_event_stay() -> None:
    event = b"event: delta\nid: 7\n" + chunk("x", "a")
    assert MergedStream().event(0, event).startswith(b"event: delta\nid: 7\ndata: {")
