import json

import pytest

from proxy.wire.nemo import NemoFields, context_fields
from proxy.wire.rewriting import Rewriters

FIELDS = {"nemo_fe_recv_ts_us": b"17", "nemo_ctx_num_chunks": b"2"}
SHOWN = b'"nemo_fe_recv_ts_us":17,"nemo_ctx_num_chunks":2'


def rewriters(*, include_usage: bool = False) -> Rewriters:
    return Rewriters([NemoFields(FIELDS, include_usage=include_usage)])


def test_a_whole_answer() -> None:
    body = b'{"id":"c-1","nemo_fe_recv_ts_us":0,"nemo_vllm_x":1}'
    assert json.loads(rewriters().answer(body)) == {
        "id": "c-1",
        "nemo_fe_recv_ts_us": 17,
        "nemo_vllm_x": 1,
        "nemo_ctx_num_chunks": 2,
    }


FIRST = b'data: {"choices":[{"delta":{"content":"\\"finish_reason\\":\\"stop\\""}}]}\n\n'
NULL = b'data: {"choices":[{"text":"a","finish_reason":null}],"usage":null}\n\n'
EACH = b'data: {"choices":[{"text":"a","finish_reason":null}],"usage":{"completion_tokens":1}}\n\n'
FINISH = b'data: {"choices":[{"text":"b","finish_reason":"stop"}]%b}\n\n'
USAGE = b'data: {"choices":[],"usage":{"completion_tokens":2}%b}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize("include_usage", [False, True], ids=["finish", "usage"])
def test_the_last_event_of_a_stream(include_usage: bool) -> None:
    finish, usage = (b"", b"," + SHOWN) if include_usage else (b"," + SHOWN, b"")
    frames = [FIRST, NULL, FINISH, DONE] if not include_usage else [FIRST, EACH, NULL, FINISH, USAGE, DONE]
    stream, expected = b"".join(frames), b"".join(frames)
    stream = stream.replace(b"%b", b"")
    expected = b"".join(frames).replace(FINISH, FINISH % finish).replace(USAGE, USAGE % usage)
    for at in range(len(stream) + 1):
        each = rewriters(include_usage=include_usage)
        assert each.feed(stream[:at]) + each.feed(stream[at:]) + each.finish() == expected


def test_what_cannot_be_read_passes() -> None:
    event = b'data: ["finish_reason":"stop"\n\n'
    assert rewriters().stream(event) == event


IDS = [
    b'"prompt_token_ids":null',
    b'"prompt_token_ids":[' + b",".join([b"12345"] * 1000) + b"]",
    b'"prompt_token_ids_b64":"' + b"A" * 4000 + b'"',
]


@pytest.mark.parametrize("ids", IDS, ids=["none", "array", "base64"])
def test_the_context_workers_own(ids: bytes) -> None:
    answer = b'{"choices":[{"nemo_ctx_y":5}],%b,"nemo_ctx_done_ts_us":1764430000123456,"a":1,"nemo_ctx_x": "\\u00e9"}'
    assert context_fields(answer % ids) == {
        "nemo_ctx_done_ts_us": b"1764430000123456",
        "nemo_ctx_x": b'"\\u00e9"',
    }
    assert context_fields(b'{"choices":[],%b}' % ids) == {}


def test_names_that_are_no_text() -> None:
    # Decoding the hand-off skips members that it does not need.
    assert context_fields(b'{"choices":[],"nemo_ctx_x":1,"\xff":1}') == {}
