import json
from typing import Any

import pytest
from wire_samples import base64_ids, chat_answer, dump

from proxy.wire.token_ids import WORTH_CUTTING, cut_token_ids

IDS = list(range(1000))
B64 = base64_ids(IDS)


def test_known_base64() -> None:
    assert base64_ids([1, 2]) == "AQAAAAIAAAA="
    assert base64_ids([1, 733, 16289, 28793]) == "AQAAAN0CAAChPwAAeXAAAA=="


@pytest.mark.parametrize(
    ("name", "value"),
    [("prompt_token_ids_b64", B64), ("prompt_token_ids", IDS), ("prompt_token_ids", [-1, *IDS])],
)
def test_cut(name: str, value: object) -> None:
    members: dict[str, Any] = {"prompt_token_ids": None, "prompt_token_ids_b64": None, name: value}
    answer = dump(chat_answer(**members))
    cut = cut_token_ids(answer)
    assert cut is not None
    assert cut.name == name
    assert bytes(cut.value) == dump(value)
    assert json.loads(cut.remainder) == {**json.loads(answer), name: json.loads(cut.nonce)}
    again = cut_token_ids(answer)
    assert again is not None
    assert again.nonce != cut.nonce


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{}",
        b'{"prompt_token_ids":null,"prompt_token_ids_b64":null}',
        dump({"prompt_token_ids": [1, 2, 3]}),
        dump({"prompt_token_ids_b64": "AQAAAAIAAAA="}),
        # brackets, quotes, braces
        b'{"prompt_token_ids":[' + b"[1]," * 2000 + b"1]}",
        b'{"prompt_token_ids":[' + b'"1",' * 2000 + b"1]}",
        b'{"prompt_token_ids":[' + b"{}," * 2000 + b"1]}",
        # escapes, other alphabets
        b'{"prompt_token_ids_b64":"' + b"\\u0041" * 2000 + b'"}',
        b'{"prompt_token_ids_b64":"' + b"A" * 5000 + b'\\""}',
        b'{"prompt_token_ids_b64":"' + b"\xc3\xa9" * 2000 + b'"}',
        # no end
        b'{"prompt_token_ids_b64":"' + b"A" * 5000,
        b'{"prompt_token_ids":[' + b"1," * 5000,
        # other spellings are for the lazy split
        b'{"prompt_token_ids_b64" :"' + b"A" * 5000 + b'"}',
        b'{"\\u0070rompt_token_ids_b64":"' + b"A" * 5000 + b'"}',
        # a text cannot hold the pattern: its quotes are escaped
        dump({"text": '"prompt_token_ids_b64":"' + "A" * 5000 + '"'}),
        dump({"text": '"prompt_token_ids":[' + "1," * 5000 + "1]"}),
    ],
)  # fmt: skip
def test_nothing_to_cut(answer: bytes) -> None:
    assert cut_token_ids(answer) is None


@pytest.mark.parametrize("size", [WORTH_CUTTING - 1, WORTH_CUTTING])
def test_small_values_are_left_to_the_split(size: int) -> None:
    for value in (b'"' + b"A" * (size - 2) + b'"', b"[" + b"1" * (size - 2) + b"]"):
        name = b"prompt_token_ids_b64" if value.startswith(b'"') else b"prompt_token_ids"
        cut = cut_token_ids(b'{"' + name + b'":' + value + b"}")
        assert (cut is not None) is (size == WORTH_CUTTING)


def test_blanks_inside_an_array_are_fine() -> None:
    value = b"[ 1 ,\n\t2 ,\r\n" + b"3, " * 2000 + b"4 ]"
    cut = cut_token_ids(b'{"prompt_token_ids":' + value + b"}")
    assert cut is not None
    assert bytes(cut.value) == value


@pytest.mark.parametrize("element", [b"1.0", b"null", b"1e3", b"true", b"x y", b"\\"])
def test_what_cannot_hold_a_bracket_is_for_the_generation_worker_to_refuse(element: bytes) -> None:
    value = b"[" + (element + b",") * 2000 + b"1]"
    cut = cut_token_ids(b'{"prompt_token_ids":' + value + b"}")
    assert cut is not None
    assert bytes(cut.value) == value
    assert json.loads(cut.remainder) == {"prompt_token_ids": json.loads(cut.nonce)}
