"""The load generator knows where an answer ends."""

import pytest

from bench.cases import CASES
from bench.fakes.answers import StreamAnswer, json_answer
from bench.load.answer_check import AnswerCheck
from bench.load.connection import ClientConnection
from bench.payloads import generation_answer


class Transport:
    def __init__(self):
        self.sent = []

    def write(self, data):
        self.sent.append(data)


def client(case):
    connection = ClientConnection(AnswerCheck(case))
    connection.connection_made(Transport())
    results = []
    connection.on_done = lambda _, problem: results.append(problem)
    return connection, results


@pytest.mark.parametrize("step", [1, 5, 64, 1 << 20])
@pytest.mark.parametrize("name", ["S3", "S4"])
def test_answers_end_where_they_end(name, step):
    case = CASES[name]
    answer = StreamAnswer(case).burst if case.streamed else json_answer(generation_answer(case))
    connection, results = client(case)
    for _ in range(2):
        connection.send(b"request")
        for start in range(0, len(answer), step):
            connection.data_received(answer[start : start + step])
        assert connection.sent <= connection.first <= connection.done
    assert results == [None, None]


def test_a_lost_connection_is_an_error():
    connection, results = client(CASES["S4"])
    connection.send(b"request")
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")
    connection.connection_lost(None)
    assert results[0].startswith("connection lost")
    connection.send(b"request")
    assert results[1].startswith("connection was closed")


def test_an_answer_without_framing_is_an_error():
    connection, results = client(CASES["S4"])
    connection.send(b"request")
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    assert results[0].startswith("no framing")


def test_first_event_is_noticed_once():
    case = CASES["S6"]
    connection, results = client(case)
    connection.endless = True
    firsts = []
    connection.on_first = firsts.append
    connection.send(b"request")
    answer = StreamAnswer(case)
    head, gap, role = answer.start.partition(b"\r\n\r\n")
    connection.data_received(head + gap)
    assert not firsts
    connection.data_received(role)
    connection.data_received(answer.frames[0])
    assert len(firsts) == 1
    assert not results
