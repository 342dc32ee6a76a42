"""A wrong answer is an error, never a fast result."""

import pytest

from bench.cases import CASES
from bench.fakes.answers import StreamAnswer, chunk_frame
from bench.load.answer_check import AnswerCheck
from bench.payloads import generation_answer, stream_events

OK = b"HTTP/1.1 200 OK\r\n"
JSON, STREAM = CASES["S4"], CASES["S3"]


def framed(events):
    return b"".join(map(chunk_frame, events)) + b"0\r\n\r\n"


def stream_check(seen=3):
    check = AnswerCheck(STREAM)
    for _ in range(seen):
        assert check.problem(OK, framed(stream_events(STREAM)), True) is None
    return check


def test_json_answer_is_learned_and_held_to_its_size():
    check = AnswerCheck(JSON)
    answer = generation_answer(JSON)
    assert check.problem(OK, answer, False) is None
    assert check.problem(OK, chunk_frame(answer) + b"0\r\n\r\n", True) is None
    assert "bytes instead of" in check.problem(OK, answer + b" ", False)
    assert "content lost" in check.problem(OK, b"x" * len(answer), False)


def test_first_json_answer_is_read():
    assert "wrong content" in AnswerCheck(JSON).problem(OK, b'{"choices":[]}', False)


@pytest.mark.parametrize("status", [b"HTTP/1.1 400 Bad Request\r\n", b"HTTP/1.1 502 Bad Gateway\r\n"])
def test_other_status_is_a_problem(status):
    assert AnswerCheck(JSON).problem(status, generation_answer(JSON), False)


@pytest.mark.parametrize("seen", [0, 3])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda events: events[:50] + events[51:],
        lambda events: events[:-1],
        lambda events: [*events[:-1], b"data: x\n\n"],
        lambda events: [*events, b"data: [DONE]\n\n"],
    ],
    ids=["one lost", "no done", "other end", "done twice"],
)
def test_lost_or_added_events_are_a_problem(spoil, seen):
    assert stream_check(seen).problem(OK, framed(spoil(list(stream_events(STREAM)))), True)


@pytest.mark.parametrize("size", [1, 3, 1000, 1 << 20])
def test_a_stream_may_be_framed_in_other_pieces(size):
    body = b"".join(stream_events(STREAM))
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    assert stream_check().problem(OK, framed(pieces), True) is None


def test_a_stream_must_be_chunked_and_whole():
    body = framed(stream_events(STREAM))
    assert stream_check().problem(OK, b"".join(stream_events(STREAM)), False)
    assert stream_check().problem(OK, body[:-100] + b"0\r\n\r\n", True)


def test_a_stream_written_anew_with_the_same_content_is_right():
    events = [event.replace(b'"object":', b'"object": ') for event in stream_events(STREAM)]
    assert AnswerCheck(STREAM).problem(OK, framed(events), True) is None


def test_burst_of_the_workers_is_right():
    burst = StreamAnswer(STREAM).burst.partition(b"\r\n\r\n")[2]
    assert AnswerCheck(STREAM).problem(OK, burst, True) is None
