import json

import pytest

from proxy.wire.rewriting import Rewriters
from proxy.wire.usage import context_usage

USAGE = b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}'
CONTEXT = USAGE % (41, 42, 1, 32)
GENERATION = USAGE % (40, 47, 7, 40)
RIGHT = USAGE % (41, 48, 7, 32)


def rewriters(context: bytes = CONTEXT) -> Rewriters:
    usage = context_usage(context)
    assert usage is not None
    return Rewriters([usage])


def test_a_whole_answer() -> None:
    body = b'{"id":"c-1","choices":[{"text":"\\"usage\\":{"}],"usage":%b,"x":null}'
    assert rewriters().answer(body % GENERATION) == body % RIGHT


@pytest.mark.parametrize("usage", [b"null", b"[1]", b'{"completion_tokens":"7"}', b'"text"'])
def test_a_usage_that_is_none_stays(usage: bytes) -> None:
    body = b'{"usage":%b}' % usage
    assert rewriters().answer(body) == body
    assert rewriters().answer(b'{"a":1}') == b'{"a":1}'


@pytest.mark.parametrize(
    "usage", [b"null", b"{}", b'{"prompt_tokens":null}', b'{"prompt_tokens":"4"}', b"[1]"]
)
def test_a_context_worker_that_did_not_count(usage: bytes) -> None:
    assert context_usage(usage) is None


@pytest.mark.parametrize(
    ("context", "generation", "expected"),
    [
        # Not known is not zero, and not what the generation worker took for it.
        (
            b'{"prompt_tokens":5}',
            GENERATION,
            {"prompt_tokens": 5, "total_tokens": 12, "prompt_tokens_details": None},
        ),
        (b'{"prompt_tokens":5}', b'{"completion_tokens":2}', {"prompt_tokens": 5, "total_tokens": 7}),
        (
            CONTEXT,
            b"{}",
            {"prompt_tokens": 41, "total_tokens": 41, "prompt_tokens_details": {"cached_tokens": 32}},
        ),
        (
            CONTEXT,
            b'{"completion_tokens":null,"z":[1]}',
            {"completion_tokens": None, "total_tokens": 41, "z": [1]},
        ),
    ],
)
def test_missing_counts(context: bytes, generation: bytes, expected: dict[str, object]) -> None:
    got = json.loads(rewriters(context).answer(b'{"usage":%b}' % generation))["usage"]
    assert {name: got[name] for name in expected} == expected
    assert ("prompt_tokens_details" in got) == (b"details" in context + generation)


STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]} \n\n'
    b'data: {"choices":[{"index":0,"text":"say \\"usage\\":{ twice"}],"usage":null}\n\n'
    b': a comment with "usage":{\n\n'
    b'data: {"choices":[],"usage":%b}\n\n'
    b"data: [DONE]\n\n"
)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_whatever_the_pieces(line_end: bytes) -> None:
    stream = (STREAM % GENERATION).replace(b"\n", line_end)
    # The event that was rewritten is framed anew, every other byte is the worker's.
    usage = b'data: {"choices":[],"usage":%b}'
    expected = stream.replace(usage % GENERATION + line_end * 2, usage % RIGHT + b"\n\n")
    assert expected != stream
    for at in range(len(stream) + 1):
        each = rewriters()
        assert each.feed(stream[:at]) + each.feed(stream[at:]) + each.finish() == expected, at


def test_an_event_of_several_lines_and_blanks() -> None:
    one = b'id: 4\ndata: {"choices": [],\ndata:  "usage" : %b}\n\n'
    (line, data) = rewriters().stream(one % GENERATION).split(b"\n")[:2]
    assert line == b"id: 4"
    assert json.loads(data.removeprefix(b"data: "))["usage"] == json.loads(RIGHT)


def test_usage_in_each_event() -> None:
    """`continuous_usage_stats`"""
    one = b'data: {"choices":[{"index":0}],"usage":%b}\n\n'
    assert rewriters().stream(one % GENERATION * 3) == one % RIGHT * 3


@pytest.mark.parametrize(
    "data", [b'{"usage":{"completion_tokens":1}', b'["usage",{"usage":{}}]', b'"usage":{']
)
def test_what_cannot_be_read_passes(data: bytes) -> None:
    one = b"data: " + data + b"\n\n"
    assert rewriters().stream(one) == one
