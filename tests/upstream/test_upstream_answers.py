"""Answers of every framing, arriving in pieces of every size, read in every way."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from fake_pool import REQUEST, FakeConnections, Sink, settle

from proxy.errors import ConnectionBroken, Retry
from proxy.upstream.connection import WorkerConnection
from proxy.wire.chunks import LAST_CHUNK, ChunkedReader

OK = b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\nContent-Type: application/json\r\n"

# name -> raw answer, status, body, whether the connection can be used again
ANSWERS: dict[str, tuple[bytes, int, bytes, bool]] = {
    "length": (OK + b"Content-Length: 13\r\n\r\n" + b'{"a": "b\\n"}\n', 200, b'{"a": "b\\n"}\n', True),
    "empty": (OK + b"content-length: 0\r\n\r\n", 200, b"", True),
    "blanks around the length": (OK + b"content-length: \t2 \t\r\n\r\n{}", 200, b"{}", True),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "not modified with a length": (b"HTTP/1.1 304 x\r\ncontent-length: 9\r\n\r\n", 304, b"", True),
    "chunked": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\n",
        200,
        b"abc0123456789",
        True,
    ),
    "extensions and trailers": (
        OK + b"Transfer-Encoding: Chunked \r\n\r\n3;a=b\r\nabc\r\n2\r\nde\r\n0;x\r\nSum: 1\r\nTo: 2\r\n\r\n",
        200,
        b"abcde",
        True,
    ),
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 2\r\n\r\n{}", 200, b"{}", True),
    "several 1xx first": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
        b"HTTP/1.1 102 Processing\r\n\r\n" + OK + b"content-length: 2\r\n\r\n{}",
        200,
        b"{}",
        True,
    ),
    "says close": (OK + b"Connection: close\r\ncontent-length: 2\r\n\r\n{}", 200, b"{}", False),
    "says close among others": (
        OK + b"Connection: x, Close\r\ncontent-length: 2\r\n\r\n{}",
        200,
        b"{}",
        False,
    ),
    "1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}", 200, b"{}", False),
    "1.0 keep-alive": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}",
        200,
        b"{}",
        False,
    ),
    "error": (b"HTTP/1.1 503 x\r\ncontent-length: 4\r\n\r\nbusy", 503, b"busy", True),
    "no reason": (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\n{}", 200, b"{}", True),
}
# These end with the connection.
UNTIL_CLOSE: dict[str, tuple[bytes, int, bytes]] = {
    "1.1": (OK + b"\r\nsome bytes", 200, b"some bytes"),
    "1.0": (b"HTTP/1.0 500 x\r\nA: b\r\n\r\n{}", 500, b"{}"),
    "nothing": (OK + b"\r\n", 200, b""),
}

Read = Callable[[WorkerConnection], Awaitable[tuple[int, bytes]]]


async def by_answer(connection: WorkerConnection) -> tuple[int, bytes]:
    answer = await connection.answer()
    return answer.head.status, answer.body


async def by_rest(connection: WorkerConnection) -> tuple[int, bytes]:
    head = await connection.head()
    answer = await connection.rest()
    assert answer.head is head
    return head.status, answer.body


async def by_late_rest(connection: WorkerConnection) -> tuple[int, bytes]:
    await connection.head()
    await settle()  # the rest arrives meanwhile and is held
    return await by_rest(connection)


async def _relay(connection: WorkerConnection, sink: Sink) -> int:
    head = await connection.head()
    connection.relay(sink)
    while not sink.over:
        await asyncio.sleep(0)
    if sink.error is not None:
        raise sink.error
    return head.status


async def by_plain_relay(connection: WorkerConnection) -> tuple[int, bytes]:
    sink = Sink()
    return await _relay(connection, sink), sink.body


async def by_framed_relay(connection: WorkerConnection) -> tuple[int, bytes]:
    sink = Sink(framed=True)
    status = await _relay(connection, sink)
    reader = ChunkedReader()
    body = b"".join(reader.feed(sink.body + LAST_CHUNK))
    assert reader.complete
    assert not reader.leftover
    return status, body


WAYS: list[Read] = [by_answer, by_rest, by_late_rest, by_plain_relay, by_framed_relay]
each_way = pytest.mark.parametrize("read", WAYS, ids=lambda read: read.__name__)


def splits(raw: bytes) -> Iterator[list[bytes]]:
    """In one piece, in two at each position, byte by byte."""
    yield [raw]
    for at in range(1, len(raw)):
        yield [raw[:at], raw[at:]]
    yield [raw[at : at + 1] for at in range(len(raw))]


@each_way
@pytest.mark.parametrize("name", ANSWERS)
async def test_complete_answers(name: str, read: Read) -> None:
    raw, status, body, reusable = ANSWERS[name]
    for pieces in splits(raw):
        pool = FakeConnections()
        connection, transport = await pool.new()
        connection.send(REQUEST)
        task = asyncio.create_task(read(connection))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        for piece in pieces:
            transport.receive(piece)
            if len(pieces) == 2:
                await asyncio.sleep(0)
        assert await task == (status, body)
        await settle()
        assert pool.counts == ((1, 1) if reusable else (0, 0))
        assert transport.is_closing() is not reusable
        assert transport.written == b"".join(REQUEST)
        await pool.close()


@each_way
@pytest.mark.parametrize("name", UNTIL_CLOSE)
async def test_answers_that_end_with_the_connection(name: str, read: Read) -> None:
    raw, status, body = UNTIL_CLOSE[name]
    for pieces in splits(raw):
        pool = FakeConnections()
        connection, transport = await pool.new()
        connection.send(REQUEST)
        task = asyncio.create_task(read(connection))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        for piece in pieces:
            transport.receive(piece)
        transport.receive_eof()
        assert await task == (status, body)
        assert pool.counts == (0, 0)


@each_way
async def test_a_reset_is_no_end_of_an_answer(read: Read) -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(read(connection))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    transport.receive(UNTIL_CLOSE["1.1"][0])
    transport.lose(ConnectionResetError())
    with pytest.raises(ConnectionBroken):
        await task
    assert pool.counts == (0, 0)


@each_way
@pytest.mark.parametrize("reused", [False, True])
@pytest.mark.parametrize("name", ["length", "extensions and trailers", "several 1xx first"])
async def test_the_connection_ends_in_every_phase(name: str, read: Read, reused: bool) -> None:
    raw = ANSWERS[name][0]
    for length in range(len(raw)):
        pool = FakeConnections()
        connection, transport = await pool.new(reused=reused)
        connection.send(REQUEST)
        task = asyncio.create_task(read(connection))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        transport.receive(raw[:length])
        transport.receive_eof()
        with pytest.raises(ConnectionBroken) as caught:
            await task
        none = Retry.REUSED_ONLY if reused else Retry.BEFORE_HAND_OFF
        assert caught.value.retry is (Retry.NEVER if length else none)
        assert pool.counts == (0, 0)


async def test_a_complete_answer_that_is_held_survives_the_connection() -> None:
    """The head is known, the worker has sent everything and closed, and only then the body is asked for."""
    for raw, status, body in [(*ANSWERS[name][:2], ANSWERS[name][2]) for name in ("length", "chunked")]:
        for sink in (None, Sink(), Sink(framed=True)):
            pool = FakeConnections()
            connection, transport = await pool.new()
            connection.send(REQUEST)
            task = asyncio.create_task(connection.head())
            await asyncio.sleep(0)
            transport.receive(raw)
            transport.lose()
            assert (await task).status == status
            if sink is None:
                assert (await connection.rest()).body == body
            else:
                connection.relay(sink)
                assert sink.last is not None
            assert pool.counts == (0, 0)


async def test_frames_are_relayed_as_they_came() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.head())
    await asyncio.sleep(0)
    frames = b"0005\r\nhello\r\nA\r\n0123456789\r\n"
    transport.receive(OK + b"transfer-encoding: chunked\r\n\r\n" + frames)
    await task
    sink = Sink(framed=True)
    connection.relay(sink)
    assert sink.pieces == [frames]
    transport.receive(frames)
    assert sink.pieces == [frames, frames]
    transport.receive(frames + b"0\r\n\r\n")
    assert sink.last == frames  # in the same call as the end
    assert pool.counts == (1, 1)


async def test_a_body_of_known_length_is_framed_for_a_client_that_is_not_told_it() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.head())
    await asyncio.sleep(0)
    transport.receive(OK + b"content-length: 10\r\n\r\n01234")
    await task
    sink = Sink(framed=True)
    connection.relay(sink)
    transport.receive(b"56789")
    assert (sink.pieces, sink.last) == ([b"5\r\n01234\r\n"], b"5\r\n56789\r\n")


async def test_no_answer_is_kept_alive_by_an_idle_connection() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.answer())
    await asyncio.sleep(0)
    for piece in (OK + b"content-length: 200000\r\n\r\n", b"x" * 100_000, b"x" * 100_000):
        transport.receive(piece)
    assert len((await task).body) == 200_000
    assert connection._pieces == []
    assert connection._held == []
