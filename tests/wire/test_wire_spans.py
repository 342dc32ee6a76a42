import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import Writer, names, properties, seeds, values

from proxy.wire.members import split_array, split_object
from proxy.wire.spans import Span, cut_ranges, element_spans, member_spans


def test_members_with_blanks_duplicates_and_escapes() -> None:
    source = b'x{ "a" : [ "]\\"" , {} ] ,"\\u0061":"\\\\","a":-1.5e3 }'
    spans = member_spans(source, 1)
    assert [span.name for span in spans] == ["a", "a", "a"]
    assert [source[span.value : span.end] for span in spans] == [b'[ "]\\"" , {} ]', b'"\\\\"', b"-1.5e3"]
    assert [source[span.start : span.value] for span in spans] == [b'"a" : ', b'"\\u0061":', b'"a":']


def test_elements() -> None:
    source = b'[ 1 ,"a,b" , [ [ ] ],{"x":"}"},null ]'
    assert [source[span.start : span.end] for span in element_spans(source, 0)] == [
        b"1",
        b'"a,b"',
        b"[ [ ] ]",
        b'{"x":"}"}',
        b"null",
    ]


@pytest.mark.parametrize("source", [b"{ }", b"{}", b"[1]", b"1", b""])
def test_no_members(source: bytes) -> None:
    assert member_spans(source, 0) == []


@pytest.mark.parametrize("source", [b"[ ]", b"[]", b'{"a":1}', b'"[1]"', b""])
def test_no_elements(source: bytes) -> None:
    assert element_spans(source, 0) == []


@pytest.mark.parametrize("source", [b"{a", b'{"a":?', b'{"a":[1', b'{"a":"x'])
def test_text_that_was_never_decoded_is_a_bug(source: bytes) -> None:
    with pytest.raises(AssertionError):
        member_spans(source, 0)


def test_a_long_value_is_passed_quickly() -> None:
    text = b'"' + b"a\\u0041" * 100_000 + b'"'
    source = b'{"a":' + text + b',"b":' + b"[" * 500 + b"]" * 500 + b"}"
    assert [span.end - span.value for span in member_spans(source, 0)] == [len(text), 1000]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b'{"x":1,"a":2,"b":3}', b'{"a":2,"b":3}'),
        (b'{"a":2,"x":1,"b":3}', b'{"a":2,"b":3}'),
        (b'{"a":2,"b":3,"x":1}', b'{"a":2,"b":3}'),
        (b'{"x":1}', b"{}"),
        (b'{ "x" : 1 , "x":2 }', b"{  }"),
        (b'{"x":1,"a":2,"x":3,"x":4,"b":5,"x":6}', b'{"a":2,"b":5}'),
        (b'{ "a" : 2 , "x" : 1 , "b" : 3 }', b'{ "a" : 2 , "b" : 3 }'),
        (b'{"a":2}', b'{"a":2}'),
    ],
)
def test_cut_ranges(source: bytes, expected: bytes) -> None:
    rest = source
    for start, end in reversed(list(cut_ranges(member_spans(source, 0), frozenset({"x"})))):
        rest = rest[:start] + rest[end:]
    assert rest == expected


@properties
@given(st.lists(st.tuples(names, values), max_size=6), seeds)
def test_spans_agree_with_the_lazy_split(pairs: list[tuple[str, object]], seed: int) -> None:
    writer = Writer(seed)
    source = writer.pairs(pairs).encode()
    last: dict[str, Span] = {}
    for span in member_spans(source, 0):
        last[span.name] = span
    assert {name: source[span.value : span.end] for name, span in last.items()} == {
        name: bytes(value) for name, value in split_object(source).items()
    }


@properties
@given(st.lists(values, max_size=6), seeds)
def test_element_spans_agree_with_the_lazy_split(elements: list[object], seed: int) -> None:
    source = Writer(seed).value(elements).encode()
    assert [source[span.start : span.end] for span in element_spans(source, 0)] == [
        bytes(element) for element in split_array(source)
    ]
