import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import Writer, names, properties, seeds, values

from proxy.wire.errors import MalformedJSON
from proxy.wire.members import (
    _OPENINGS,
    JSONBytes,
    equals,
    first_byte,
    is_null,
    join_array,
    join_object,
    object_pieces,
    open_object,
    split_array,
    split_object,
)


def plain(members: dict[str, msgspec.Raw]) -> dict[str, bytes]:
    return {name: bytes(value) for name, value in members.items()}


def test_split_keeps_order_and_bytes() -> None:
    source = b' { "b" : 1.50 ,\n"a": [ 1 , 2 ] , "c":{"x":"\xc3\xa9\\u00e9"} } '
    assert list(plain(split_object(source)).items()) == [
        ("b", b"1.50"),
        ("a", b"[ 1 , 2 ]"),
        ("c", b'{"x":"\xc3\xa9\\u00e9"}'),
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"{}", {}),
        (b'{"a":1,"a":2}', {"a": b"2"}),
        (b'{"a":1,"b":3,"\\u0061":2}', {"a": b"2", "b": b"3"}),
        (b'{"\\u0070rompt_token_ids":[1]}', {"prompt_token_ids": b"[1]"}),
        (b'{"\\ud83d\\ude00":"\\ud83d\\ude00"}', {"\U0001f600": b'"\\ud83d\\ude00"'}),
        (b'{"a":{"a":1,"a":2}}', {"a": b'{"a":1,"a":2}'}),
        (b'{"a":9007199254740993}', {"a": b"9007199254740993"}),
        (b'{"":null}', {"": b"null"}),
    ],
)
def test_split_names(source: bytes, expected: dict[str, bytes]) -> None:
    assert plain(split_object(source)) == expected


def test_order_of_duplicates_is_that_of_the_first() -> None:
    assert list(split_object(b'{"a":1,"b":2,"a":3}')) == ["a", "b"]


@pytest.mark.parametrize(
    "source",
    [
        b"", b" ", b"null", b"[]", b"1", b'"{}"', b"{", b'{"a"}', b'{"a":}', b'{"a":1,}', b"{} x", b'{"a":01}',
        b'{"a":NaN}', b'{"a":-}', b"{'a':1}", b"{a:1}", b"\xef\xbb\xbf{}", b'{"\xff":1}', b'{"a":"\x01"}',
        b'{"a":"\\x"}', b'{"a":"\\ud800"}', b'{"a":"\\udc00\\ud800 "}', b'{"a":[1}', b"\x00{}", b'{"a":tru}',
    ],
)  # fmt: skip
def test_not_an_object(source: bytes) -> None:
    with pytest.raises(MalformedJSON):
        split_object(source)


@pytest.mark.parametrize("bracket", [b"[]", b"{}"])
def test_deep_nesting_is_an_error_of_our_own(bracket: bytes) -> None:
    opening = bracket[:1] if bracket == b"[]" else b'{"a":'
    deep = opening * 100_000 + b"1" + bracket[1:] * 100_000
    with pytest.raises(MalformedJSON, match="nested too deeply"):
        split_object(b'{"a":' + deep + b"}")
    with pytest.raises(MalformedJSON, match="nested too deeply"):
        split_array(b"[" + deep + b"]")


def test_moderate_nesting_passes() -> None:
    assert split_object(b'{"a":' + b"[" * 500 + b"]" * 500 + b"}")


def test_split_array() -> None:
    assert [bytes(element) for element in split_array(b' [ 1 , "a,]" ,{"x": [ ]}, [] ] ')] == [
        b"1",
        b'"a,]"',
        b'{"x": [ ]}',
        b"[]",
    ]
    assert split_array(msgspec.Raw(b"[]")) == []


@pytest.mark.parametrize("source", [b"", b"{}", b"[1", b"[1,]", b"[1]]", b"1", b"null"])
def test_not_an_array(source: bytes) -> None:
    with pytest.raises(MalformedJSON):
        split_array(source)


def test_join() -> None:
    members: dict[str, JSONBytes] = {
        "model": b'"m"',
        'q"\u00e9\n': memoryview(b"1"),
        "a": msgspec.Raw(b"[ ]"),
    }
    text = '"model":"m","q\\"\u00e9\\n":1,"a":[ ]'.encode()
    assert join_object(members) == b"{" + text + b"}"
    assert open_object(members, "z") == (b"{" + text + b',"z":',)
    assert open_object({}, "z") == (b'{"z":',)
    assert join_object({}) == b"{}"
    assert join_array([b"1", msgspec.Raw(b"2")]) == b"[1,2]"
    assert join_array([]) == b"[]"


@pytest.mark.parametrize("large", [True, False])
def test_large_values_are_copied_only_if_nobody_minds(large: bool) -> None:
    prompt = msgspec.Raw(b'"' + b"x" * 20_000 + b'"')
    members: dict[str, JSONBytes] = {"a": b"1", "prompt": prompt, "b": b"2"}
    for pieces, end in (
        (object_pieces(members, large=large), b'"b":2}'),
        (open_object(members, "z", large=large), b'"b":2,"z":'),
    ):
        assert b"".join(pieces) == b'{"a":1,"prompt":' + bytes(prompt) + b"," + end
        assert len(pieces) == (3 if large else 1)
        assert all(isinstance(piece, bytes | memoryview) for piece in pieces), "what transports take"


def test_names_that_differ_in_their_order_only() -> None:
    assert join_object({"a": b"1", "b": b"2"}) == b'{"a":1,"b":2}'
    assert join_object({"b": b"2", "a": b"1"}) == b'{"b":2,"a":1}'


def test_the_shapes_of_clients_do_not_fill_the_memory() -> None:
    for number in range(2000):
        assert join_object({f"n{number}": b"1"}) == b'{"n%d":1}' % number
    long = "x" * 10_000
    assert join_object({long: b"1"}) == b'{"' + long.encode() + b'":1}'
    assert len(_OPENINGS) <= 512
    assert all(len(names[0]) < 1024 for names in _OPENINGS)


def test_small_questions_about_values() -> None:
    raw = split_object(b'{"a" : null , "b":"null", "c": true }')
    assert is_null(raw["a"])
    assert is_null(None)
    assert not is_null(raw["b"])
    assert equals(raw["c"], b"true")
    assert not equals(raw["c"], b"tru")
    assert first_byte(raw["b"]) == ord('"')


@properties
@given(st.lists(st.tuples(names, values), max_size=6), seeds)
def test_split_and_join_change_nothing(pairs: list[tuple[str, object]], seed: int) -> None:
    writer = Writer(seed)
    source = writer.padded(writer.pairs(pairs)).encode()
    members = split_object(source)
    assert json.loads(join_object(members)) == json.loads(source) == dict(pairs)
    for value in members.values():
        assert bytes(value) in source
