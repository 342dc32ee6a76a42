"""Answers that are not valid HTTP: an error, the connection closed, nothing left over."""

import asyncio

import pytest
from fake_pool import REQUEST, FakeConnections, Sink, settle

from proxy.errors import BrokenAnswer
from proxy.upstream.head import ResponseHead, framing, parse_head
from proxy.wire.errors import BrokenFraming

OK = b"HTTP/1.1 200 OK\r\n"

BAD_HEADS: dict[str, bytes] = {
    "another protocol": b"\x15\x03\x03\x00\x02\x02\x28",
    "garbage": b"hello there\r\n\r\n",
    "a request": b"GET / HTTP/1.1\r\n\r\n",
    "2.0": b"HTTP/2.0 200\r\n\r\n",
    "0.9": b"HTTP/0.9 200 OK\r\n\r\n",
    "status too low": b"HTTP/1.1 099 x\r\n\r\n",
    "status too high": b"HTTP/1.1 600 x\r\n\r\n",
    "status of four digits": b"HTTP/1.1 2000 x\r\n\r\n",
    "switching protocols": b"HTTP/1.1 101 x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    "switching without a name": b"HTTP/1.1 101 x\r\n\r\n",
    "folded line": OK + b"a: b\r\n c\r\ncontent-length: 0\r\n\r\n",
    "bare line feed": OK + b"a: b\nc: d\r\ncontent-length: 0\r\n\r\n",
    "only bare line feeds": b"HTTP/1.1 200 OK\ncontent-length: 2\n\n{}",
    "bare carriage return": OK + b"a: b\rc\r\n\r\n",
    "no colon": OK + b"a b\r\n\r\n",
    "blank before the colon": OK + b"content-length : 2\r\n\r\n{}",
    "zero byte": OK + b"a: \0\r\n\r\n",
    "length and chunked": OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": OK + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "the same length twice": OK + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "signed length": OK + b"content-length: +5\r\n\r\nhello",
    "list of lengths": OK + b"content-length: 5, 5\r\n\r\nhello",
    "no length": OK + b"content-length:\r\n\r\n",
    "huge length": OK + b"content-length: 99999999999999999999999\r\n\r\n",
    "gzip, chunked": OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "gzip": OK + b"transfer-encoding: gzip\r\n\r\n",
    "identity": OK + b"transfer-encoding: identity\r\n\r\n",
    "too many headers": OK + b"a: b\r\n" * 22_000 + b"\r\n",
    "too many headers, no end": OK + b"a: b\r\n" * 22_000,
    "a 100 of this size": b"HTTP/1.1 100 x\r\n"
    + b"a: b\r\n" * 22_000
    + b"\r\n"
    + OK
    + b"content-length: 0\r\n\r\n",
}
BAD_BODIES: dict[str, bytes] = {
    "no size": b"\r\nhello",
    "negative size": b"-5\r\nhello\r\n",
    "prefixed size": b"0x5\r\nhello\r\n",
    "underscore": b"1_0\r\nhello",
    "huge size": b"11111111111111111\r\n",
    "not hexadecimal": b"g\r\n",
    "blank before the size": b" 5\r\nhello\r\n",
    "payload too long": b"5\r\nhello world\r\n",
    "bare line feed behind the size": b"5\nhello\r\n",
    "bare line feed behind the payload": b"5\r\nhello\n5\r\nhello\r\n",
    "endless extension": b"5;" + b"a" * 5000,
    "endless trailers": b"0\r\n" + b"a: b\r\n" * 4000,
}


async def refused(raw: bytes, *, size: int | None = None) -> None:
    """Feed in pieces of `size`; the answer must be refused and the connection closed."""
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.answer())
    await asyncio.sleep(0)
    for at in range(0, len(raw), size or len(raw)):
        transport.receive(raw[at : at + (size or len(raw))])
    with pytest.raises(BrokenAnswer) as caught:
        await task
    assert "not valid HTTP" in caught.value.message
    await settle()
    assert transport.aborted
    assert pool.counts == (0, 0)


@pytest.mark.parametrize("name", BAD_HEADS)
async def test_bad_heads(name: str) -> None:
    raw = BAD_HEADS[name]
    await refused(raw)
    await refused(raw, size=1000 if len(raw) > 1000 else 1)


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_bad_chunks(name: str) -> None:
    raw = OK + b"transfer-encoding: chunked\r\n\r\n" + BAD_BODIES[name]
    await refused(raw)
    await refused(raw, size=1000 if len(raw) > 1000 else 1)


async def test_a_broken_body_ends_a_relay() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.head())
    await asyncio.sleep(0)
    transport.receive(OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
    await task
    sink = Sink()
    connection.relay(sink)
    transport.receive(b"oops\r\n")
    assert isinstance(sink.error, BrokenAnswer)
    assert sink.pieces == [b"hello"]
    await settle()
    assert pool.counts == (0, 0)


async def test_broken_bytes_that_were_held_end_a_relay() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.head())
    await asyncio.sleep(0)
    transport.receive(OK + b"transfer-encoding: chunked\r\n\r\nnonsense")
    await task
    sink = Sink()
    connection.relay(sink)
    assert isinstance(sink.error, BrokenAnswer)
    await settle()
    assert pool.counts == (0, 0)


def test_header_names_are_lower_case_and_the_first_value_counts() -> None:
    head = parse_head(b"HTTP/1.1 200 OK\r\nX-A: 1 \r\nx-a: 2\r\n\r\n")
    assert head == ResponseHead(200, ((b"x-a", b"1"), (b"x-a", b"2")), True)
    assert head.get(b"x-a") == b"1"
    assert head.get(b"x-b") is None


@pytest.mark.parametrize("length", [b"5 5", b"", b"-1", b"1e3"])
def test_a_length_that_only_another_parser_would_have_passed(length: bytes) -> None:
    with pytest.raises(BrokenFraming):
        framing(ResponseHead(200, [(b"content-length", length)], True))


def test_two_lengths_that_only_another_parser_would_have_passed() -> None:
    headers = [(b"content-length", b"1"), (b"content-length", b"2")]
    with pytest.raises(BrokenFraming):
        framing(ResponseHead(200, headers, True))
