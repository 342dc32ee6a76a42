"""Heads that are remembered: shared between answers, while each answer's body is its own."""

import pytest

from proxy.upstream import head as heads
from proxy.upstream.head import read_head
from proxy.wire.errors import BrokenFraming

LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "body", "pieces"),
    [(LENGTH, b"hello", [b"hello"]), (CHUNKED, b"5\r\nhello\r\n0\r\n\r\n", [b"hello"])],
)
def test_answers_of_one_head_have_bodies_of_their_own(data: bytes, body: bytes, pieces: list[bytes]) -> None:
    first, of_first = read_head(data)
    second, of_second = read_head(data)
    assert second is first
    assert of_first.feed(body) == pieces
    assert of_first.complete
    assert not of_second.complete
    assert of_second.feed(body) == pieces


def test_a_body_that_ends_with_the_connection() -> None:
    for _ in range(2):
        _, reader = read_head(UNTIL_CLOSE)
        assert reader.feed(b"hello") == [b"hello"]
        assert not reader.complete
        assert reader.closed()


def test_what_is_remembered_cannot_be_changed() -> None:
    head, _ = read_head(LENGTH)
    with pytest.raises(TypeError):
        head.headers[0] = (b"content-length", b"6")  # type: ignore[index]  # the point


def test_an_answer_that_is_not_final_has_no_body() -> None:
    head, reader = read_head(b"HTTP/1.1 103 x\r\ncontent-length: 5\r\n\r\n")
    assert head.status == 103
    assert reader.complete


def test_neither_mistakes_nor_long_heads_are_remembered() -> None:
    before = heads._remembered.cache_info().currsize
    for _ in range(2):
        with pytest.raises(BrokenFraming):
            read_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n")
    long = b"HTTP/1.1 200 OK\r\na: %b\r\ncontent-length: 0\r\n\r\n" % (b"b" * 600)
    assert read_head(long)[0] == read_head(long)[0]
    assert heads._remembered.cache_info().currsize == before
