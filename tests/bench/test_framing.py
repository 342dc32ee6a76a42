"""The fake workers cut requests out of any splitting of the bytes."""

import pytest

from bench.cases import CASES
from bench.fakes.answers import StreamAnswer, TensorRTContext, chunk_frame, json_answer
from bench.fakes.framing import RequestReader, dechunk
from bench.payloads import prompt_ids, stream_events

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_requests_come_out_whole_however_they_are_split(step):
    data = POST + GET + CHUNKED
    reader = RequestReader()
    found = []
    for start in range(0, len(data), step):
        found += reader.feed(data[start : start + step])
    assert [body for _, body in found] == [b"hello", b"", b"abcde"]
    assert found[1][0].startswith(b"GET /health")


def test_two_requests_in_one_read():
    assert [body for _, body in RequestReader().feed(POST + POST)] == [b"hello", b"hello"]


def test_expect_continue_is_seen_until_the_body_comes():
    reader = RequestReader()
    head, body = POST.replace(b"Host: a", b"Expect: 100-continue").split(b"\r\n\r\n")
    reader.feed(head + b"\r\n\r\n")
    assert reader.wants_continue
    reader.feed(body)
    assert not reader.wants_continue


def test_dechunk_returns_body_and_end():
    data = chunk_frame(b"one") + chunk_frame(b"two") + b"0\r\n\r\nrest"
    assert dechunk(data) == (b"onetwo", len(data) - 4)
    assert dechunk(data[:8]) is None


def test_burst_holds_every_event_in_a_frame_of_its_own():
    case = CASES["S3"]
    answer = StreamAnswer(case)
    head, _, frames = answer.burst.partition(b"\r\n\r\n")
    assert b"chunked" in head
    found = dechunk(frames)
    assert found is not None
    assert found[0] == b"".join(stream_events(case))
    assert len(answer.frames) == 200


@pytest.mark.parametrize("as_base64", [True, False])
def test_context_answer_carries_the_id_of_its_request(as_base64):
    import base64
    import json
    from array import array

    case = CASES["S4"]
    flag = str(as_base64).lower().encode()
    body = (
        b'{"disaggregated_params":{"disagg_request_id": 4611686018427387904,"return_prompt_token_ids_b64":%s}}'
        % flag
    )
    pieces = TensorRTContext(case).pieces(body)
    assert pieces is not None
    head, _, text = b"".join(pieces).partition(b"\r\n\r\n")
    assert int(head.rsplit(b"content-length: ")[1]) == len(text)
    answer = json.loads(text)
    params = answer["choices"][0]["disaggregated_params"]
    assert params["disagg_request_id"] == params["ctx_request_id"] == 4611686018427387904
    if as_base64:
        ids = list(array("i", base64.b64decode(answer["prompt_token_ids_b64"])))
        assert answer["prompt_token_ids"] is None
    else:
        ids = answer["prompt_token_ids"]
    assert tuple(ids) == prompt_ids(case.token_ids)


def test_context_answer_needs_an_id():
    assert TensorRTContext(CASES["S4"]).pieces(b"{}") is None


def test_json_answer_counts_its_bytes():
    assert json_answer("ä".encode()).endswith(b"content-length: 2\r\n\r\n\xc3\xa4")
