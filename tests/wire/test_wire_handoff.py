import json
from typing import Any

import pytest
from wire_samples import REQUEST_ID, USAGE, base64_ids, chat_answer, dump, parameters

from proxy.wire.errors import BrokenHandOff
from proxy.wire.handoff import Outcome, read_context_answer

MANY = list(range(100_000))
MANY_B64 = base64_ids(MANY)


def token_ids(body: bytes) -> tuple[str, object]:
    answer = read_context_answer(body)
    return answer.token_ids_member, None if answer.token_ids is None else json.loads(bytes(answer.token_ids))


def test_what_is_read() -> None:
    body = dump(chat_answer())
    answer = read_context_answer(body)
    assert answer.body is body
    assert answer.outcome is Outcome.HAND_OFF
    assert answer.finish_reason == "not_finished"
    assert answer.request_id == REQUEST_ID
    assert json.loads(bytes(answer.usage)) == USAGE
    assert {name: json.loads(bytes(value)) for name, value in answer.parameters.items()} == parameters()


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("not_finished", Outcome.HAND_OFF),
        ("length", Outcome.HAND_OFF),
        ("stop", Outcome.FINISHED),
        ("tool_calls", Outcome.FINISHED),
        ("content_filter", Outcome.FINISHED),
        ("", Outcome.FINISHED),
        (None, Outcome.GIVEN_UP),
        ("timeout", Outcome.GIVEN_UP),
        ("cancelled", Outcome.GIVEN_UP),
    ],
)
def test_outcomes(reason: str | None, outcome: Outcome) -> None:
    answer = read_context_answer(dump(chat_answer(finish_reason=reason)))
    assert (answer.outcome, answer.finish_reason) == (outcome, reason)
    if outcome is not Outcome.HAND_OFF:
        # Nothing is held: what the parameters say does not matter, not even that they are missing.
        assert answer.parameters == {}
        assert answer.request_id == 0
        for params in (None, {}, 7, parameters(ctx_request_id=None)):
            body = dump(chat_answer(finish_reason=reason, params=params))
            assert read_context_answer(body).outcome is outcome


def test_absent_finish_reason_is_null() -> None:
    assert read_context_answer(b'{"choices":[{}]}').outcome is Outcome.GIVEN_UP


@pytest.mark.parametrize("params", [None, 7, "x", [], [parameters()], {}])
def test_hand_off_without_parameters(params: object) -> None:
    with pytest.raises(BrokenHandOff):
        read_context_answer(dump(chat_answer(params=params)))


@pytest.mark.parametrize("name", ["disagg_request_id", "ctx_request_id"])
@pytest.mark.parametrize(
    "value",
    [
        b"null", b"-1", b"9223372036854775808", b"1" + b"0" * 30, b"1" + b"0" * 5000, b"1.5", b"1.0", b"1e18",
        b"1234567890123456789.0", b"1e999", b'"7"', b"true", b"[7]", b"{}",
    ],
)  # fmt: skip
def test_hand_off_without_a_usable_id(name: str, value: bytes) -> None:
    body = dump(chat_answer(params=parameters(**{name: 424242})))
    assert read_context_answer(body)
    with pytest.raises(BrokenHandOff, match=name):
        read_context_answer(body.replace(b"424242", value))
    with pytest.raises(BrokenHandOff, match=name):
        read_context_answer(dump(chat_answer(params=parameters(**{name: ...}))))


@pytest.mark.parametrize("value", [0, 1, 2**53 + 1, 2**63 - 1])
def test_ids_stay_exact(value: int) -> None:
    params = parameters(disagg_request_id=value, ctx_request_id=value // 2)
    answer = read_context_answer(dump(chat_answer(params=params)))
    assert answer.request_id == value
    assert bytes(answer.parameters["ctx_request_id"]) == b"%d" % (value // 2)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b"data: {}\n\n", b'{"choices":null}', b'{"choices":[]}', b'{"choices":{}}',
        b'{"choices":[null]}', b'{"choices":[1]}', b'{"choices":[{"finish_reason":7}]}',
        b'{"choices":[{"finish_reason":"\xff"}]}', b'{"choices":[{}]', b'{"choices":[{}],"x":NaN}',
        b'{"choices":[{}],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"choices":[{"finish_reason":"length","disaggregated_params":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    ],
)  # fmt: skip
def test_not_an_answer(body: bytes) -> None:
    with pytest.raises(BrokenHandOff):
        read_context_answer(body)


def test_a_broken_answer_around_good_ids() -> None:
    with pytest.raises(BrokenHandOff):
        read_context_answer(b'{"choices":[{}],"prompt_token_ids_b64":"' + MANY_B64.encode() + b'"')


@pytest.mark.parametrize(
    ("array", "b64", "expected"),
    [
        (None, None, ("", None)),
        (..., ..., ("", None)),
        ([], None, ("", None)),
        ([], "", ("", None)),
        (None, "", ("", None)),
        ([1, 2], None, ("prompt_token_ids", [1, 2])),
        ([1, 2], "", ("prompt_token_ids", [1, 2])),
        (..., "AQAAAA==", ("prompt_token_ids_b64", "AQAAAA==")),
        ([], "AQAAAA==", ("prompt_token_ids_b64", "AQAAAA==")),
        ([1, 2], "AQAAAA==", ("prompt_token_ids_b64", "AQAAAA==")),
        (MANY, None, ("prompt_token_ids", MANY)),
        (MANY, "", ("prompt_token_ids", MANY)),
        (MANY, "AQAAAA==", ("prompt_token_ids_b64", "AQAAAA==")),
        (None, MANY_B64, ("prompt_token_ids_b64", MANY_B64)),
        ([1, 2], MANY_B64, ("prompt_token_ids_b64", MANY_B64)),
        (MANY, MANY_B64, ("prompt_token_ids_b64", MANY_B64)),
    ],
    ids=range(16),
)
def test_token_ids(array: object, b64: object, expected: object) -> None:
    assert token_ids(dump(chat_answer(prompt_token_ids=array, prompt_token_ids_b64=b64))) == expected
    # The other order, with the ids first, and with blanks everywhere.
    answer = chat_answer(prompt_token_ids=array, prompt_token_ids_b64=b64)
    turned = dict(reversed(list(answer.items())))
    assert token_ids(dump(turned)) == expected
    assert token_ids(json.dumps(turned, indent=1).encode()) == expected


def test_blanks_in_an_empty_array() -> None:
    for text in (b"[ ]", b"[\r\n\t ]"):
        assert token_ids(b'{"choices":[{}],"prompt_token_ids":' + text + b"}") == ("", None)


@pytest.mark.parametrize("name", ["prompt_token_ids", "prompt_token_ids_b64"])
@pytest.mark.parametrize("value", [7, True, {}, {"a": 1}])
def test_token_ids_in_an_unknown_form(name: str, value: object) -> None:
    with pytest.raises(BrokenHandOff, match=name):
        read_context_answer(dump(chat_answer(**{"prompt_token_ids": None, name: value})))  # type: ignore[arg-type]


REAL = '"' + base64_ids(list(range(2000))) + '"'
FALSE = '"' + base64_ids([7] * 2000) + '"'
REAL_ARRAY = dump(list(range(2000))).decode()
FALSE_ARRAY = dump([7] * 2000).decode()


@pytest.mark.parametrize(
    ("name", "real", "false"),
    [("prompt_token_ids_b64", REAL, FALSE), ("prompt_token_ids", REAL_ARRAY, FALSE_ARRAY)],
    ids=["base64", "array"],
)
@pytest.mark.parametrize(
    "template",
    [
        # the pattern in nested objects, before and behind the member itself
        '{"x":{"NAME":FALSE},"choices":[{}],"NAME":REAL}',
        '{"choices":[{"message":{"NAME":FALSE}}],"NAME":REAL}',
        '{"NAME":REAL,"choices":[{"NAME":FALSE}]}',
        '{"x":[[{"y":{"NAME":FALSE}}]],"choices":[{}],"NAME":REAL}',
        # duplicates: the last one counts, as in every JSON reader that the workers use
        '{"NAME":FALSE,"choices":[{}],"NAME":REAL}',
        '{"NAME":FALSE,"NAME":FALSE,"choices":[{}],"NAME":REAL}',
        '{"NAME":FALSE,"choices":[{}],"ESCAPED":REAL}',
        '{"ESCAPED":FALSE,"choices":[{}],"NAME":REAL}',
        '{"choices":[{}],"ESCAPED":REAL}',
        # blanks
        '{"choices":[{}],"NAME" : REAL}',
        '{ "x" : {"NAME":FALSE} , "choices" : [ { } ] , "NAME" : REAL }',
        # tails of escaped names and of texts
        r'{"\"NAME":FALSE,"choices":[{}],"NAME":REAL}',
        r'{"x\\\"NAME":FALSE,"choices":[{}],"NAME":REAL}',
        r'{"choices":[{"text":"x\"NAME\":FALSE_TEXT"}],"NAME":REAL}',
        r'{"choices":[{"text":"\\"}],"NAME":REAL}',
        r'{"choices":[{"text":"\\\"NAME\":\"\\"}],"NAME":REAL}',
    ],
)
def test_imitations(name: str, real: str, false: str, template: str) -> None:
    text = (
        template.replace("NAME", name)
        .replace("ESCAPED", "\\u0070rompt\\u005f" + name.removeprefix("prompt_"))
        .replace("FALSE_TEXT", false.replace('"', '\\"'))
        .replace("FALSE", false)
        .replace("REAL", real)
    )
    assert token_ids(text.encode()) == (name, json.loads(real))


@pytest.mark.parametrize(
    "template",
    [
        '{"choices":[{}],"x":{"prompt_token_ids_b64":FALSE}}',
        r'{"choices":[{}],"\"prompt_token_ids_b64":FALSE}',
        '{"choices":[{}],"prompt_token_ids_b64":FALSE,"prompt_token_ids_b64":null}',
        '{"choices":[{}],"prompt_token_ids_b64":FALSE,"prompt_token_ids_b64":""}',
        '{"choices":[{"prompt_token_ids_b64":FALSE}],"prompt_token_ids":null}',
    ],
)
def test_an_imitation_alone_is_nothing(template: str) -> None:
    assert token_ids(template.replace("FALSE", FALSE).encode()) == ("", None)


def test_an_array_does_not_win_over_base64_behind_it() -> None:
    body = f'{{"prompt_token_ids":{FALSE_ARRAY},"choices":[{{}}],"prompt_token_ids_b64" : {REAL}}}'
    assert token_ids(body.encode()) == ("prompt_token_ids_b64", json.loads(REAL))


def test_unknown_members_and_several_choices() -> None:
    answer: dict[str, Any] = chat_answer(extra={"a": [1, {"b": None}]})
    answer["choices"].append({"finish_reason": None, "disaggregated_params": None})
    assert read_context_answer(dump(answer)).outcome is Outcome.HAND_OFF


def test_duplicate_ids_of_the_request() -> None:
    params = b'{"disagg_request_id":1,"ctx_request_id":3,"disagg_request_id":2}'
    body = b'{"choices":[{"finish_reason":"length","disaggregated_params":' + params + b"}]}"
    assert read_context_answer(body).request_id == 2
