"""The rules of one exchange: what ends it, what closes the connection, who is told."""

import asyncio

import pytest
from fake_pool import REQUEST, FakeConnections, Sink, settle

from proxy.errors import ClientGone, ConnectionBroken, LegTimeout, ProxyError, Retry

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"

# who waits, and what has come
PHASES = [("answer", b""), ("answer", b"HTTP/1.1 1"), ("answer", HEAD), ("answer", HEAD + b"3\r\nab")]
PHASES += [("head", b""), ("head", b"HTTP/1.1 1")]
PHASES += [(way, HEAD + part) for way in ("rest", "relay") for part in (b"", b"3\r\nab")]


async def test_one_connection_serves_exchange_after_exchange() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    for _ in range(3):
        assert connection.usable
        connection.send(REQUEST)
        assert not connection.usable
        task = asyncio.create_task(connection.answer())
        await asyncio.sleep(0)
        transport.receive(ANSWER)
        assert (await task).body == b"{}"
        assert pool.take_idle() is connection
        assert connection.reused
    assert transport.written == b"".join(REQUEST) * 3


async def test_an_answer_before_the_request_is_written_ends_the_connection() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    transport.stall()
    connection.send((REQUEST[0], b"x" * 100_000))
    task = asyncio.create_task(connection.answer())
    await asyncio.sleep(0)
    transport.receive(b"HTTP/1.1 413 x\r\ncontent-length: 3\r\n\r\nbig")
    answer = await task
    assert (answer.head.status, answer.body) == (413, b"big")
    await settle()
    assert transport.aborted
    assert pool.counts == (0, 0)


@pytest.mark.parametrize("extra", [b"x", b"\r\n", ANSWER])
@pytest.mark.parametrize(
    "body", [b"content-length: 2\r\n\r\n{}", b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n" + END]
)
async def test_bytes_behind_an_answer_end_the_connection(body: bytes, extra: bytes) -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.answer())
    await asyncio.sleep(0)
    transport.receive(b"HTTP/1.1 200 OK\r\n" + body + extra)
    assert (await task).body == b"{}"
    await settle()
    assert transport.aborted
    assert pool.counts == (0, 0)


async def test_bytes_on_an_idle_connection_close_it() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    pool.give_back(connection)
    transport.receive(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert pool.take_idle() is None
    await settle()
    assert pool.counts == (0, 0)


async def test_bytes_between_hand_over_and_request_are_no_answer() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    transport.receive(ANSWER)
    assert not connection.usable
    connection.send(REQUEST)
    task = asyncio.create_task(connection.answer())
    with pytest.raises(ConnectionBroken):
        await task
    assert pool.counts == (0, 0)


async def test_sending_on_a_lost_connection_says_that_it_was_lost() -> None:
    for reused, retry in ((False, Retry.BEFORE_HAND_OFF), (True, Retry.REUSED_ONLY)):
        pool = FakeConnections()
        connection, transport = await pool.new(reused=reused)
        transport.lose()
        connection.send(REQUEST)
        with pytest.raises(ConnectionBroken) as caught:
            await connection.answer()
        assert caught.value.retry is retry


@pytest.mark.parametrize(("way", "before"), PHASES)
async def test_abort_reaches_whoever_waits_once(way: str, before: bytes) -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    exchange = connection.send(REQUEST)
    sink = Sink()

    async def read() -> None:
        if way == "answer":
            await connection.answer()
        elif way == "head":
            await connection.head()
        else:
            await connection.head()
            if way == "rest":
                await connection.rest()
            else:
                connection.relay(sink)

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    if before:
        transport.receive(before)
        await settle()
    error = LegTimeout("too late")
    connection.abort(exchange, error)
    connection.abort(exchange, ClientGone("later"))
    if way == "relay":
        await task
        assert sink.error is error
    else:
        with pytest.raises(LegTimeout):
            await task
    await settle()
    assert transport.aborted
    assert pool.counts == (0, 0)


async def test_a_late_abort_does_not_hit_the_next_exchange() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    first = connection.send(REQUEST)
    task = asyncio.create_task(connection.answer())
    await asyncio.sleep(0)
    transport.receive(ANSWER)
    await task
    connection.abort(first, ClientGone("x"))
    assert connection.usable
    second = connection.send(REQUEST)
    assert second != first
    connection.abort(first, ClientGone("x"))
    task = asyncio.create_task(connection.answer())
    await asyncio.sleep(0)
    transport.receive(ANSWER)
    assert (await task).body == b"{}"
    assert not transport.is_closing()


@pytest.mark.parametrize("then", ["rest", "relay"])
@pytest.mark.parametrize("body", [b"", b"2\r\n{}\r\n", b"2\r\n{}\r\n" + END])
async def test_an_abort_between_head_and_body_is_not_lost(then: str, body: bytes) -> None:
    """The head has come, the task that waited for it has not run yet, and the deadline passes."""
    pool = FakeConnections()
    connection, transport = await pool.new()
    exchange = connection.send(REQUEST)
    task = asyncio.create_task(connection.head())
    await asyncio.sleep(0)
    transport.receive(HEAD + body)
    error = LegTimeout("too late")
    connection.abort(exchange, error)
    assert (await task).status == 200
    if then == "relay":
        sink = Sink()
        connection.relay(sink)
        assert sink.error is error
    else:
        with pytest.raises(LegTimeout):
            await connection.rest()
    await settle()
    assert pool.counts == (0, 0)


@pytest.mark.parametrize(("way", "before"), [phase for phase in PHASES if phase[0] != "relay"])
async def test_a_cancelled_wait_closes_the_connection(way: str, before: bytes) -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)

    async def read() -> None:
        if way == "rest":
            await connection.head()
        await (
            connection.head()
            if way == "head"
            else connection.rest()
            if way == "rest"
            else connection.answer()
        )

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    if before:
        transport.receive(before)
        await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle()
    assert transport.aborted
    assert pool.counts == (0, 0)


async def test_cancelled_just_as_the_head_came() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.head())
    await asyncio.sleep(0)
    transport.receive(HEAD)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle()
    assert pool.counts == (0, 0)


async def test_cancelled_just_as_the_answer_was_complete() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.answer())
    await asyncio.sleep(0)
    transport.receive(ANSWER)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pool.counts == (1, 1)  # the exchange was over: nothing is wrong with the connection
    assert not transport.is_closing()


async def test_cancelled_just_as_the_connection_broke(caplog: pytest.LogCaptureFixture) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    pool = FakeConnections()
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.answer())
    await asyncio.sleep(0)
    transport.lose()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task, connection
    await settle()
    assert problems == []


async def test_a_sink_is_told_of_the_end_once() -> None:
    for end, how in ((END, "last"), (None, "error")):
        pool = FakeConnections()
        connection, transport = await pool.new()
        exchange = connection.send(REQUEST)
        task = asyncio.create_task(connection.head())
        await asyncio.sleep(0)
        transport.receive(HEAD + b"2\r\n{}\r\n")
        await task
        sink = Sink()
        connection.relay(sink)
        if end is not None:
            transport.receive(end)
        else:
            transport.lose()
        connection.abort(exchange, ClientGone("x"))
        transport.lose()
        await settle()
        assert getattr(sink, how) is not None
        error: ProxyError | None = sink.error
        if error is not None:
            assert isinstance(error, ConnectionBroken)
            assert error.retry is Retry.NEVER
        assert pool.counts == (0, 0)


@pytest.mark.parametrize("reused", [False, True])
@pytest.mark.parametrize(
    ("size", "drained", "unsent"), [(100_000, False, True), (100_000, True, False), (1000, False, False)]
)
async def test_a_request_that_was_not_written_completely_was_not_seen(
    reused: bool, size: int, drained: bool, unsent: bool
) -> None:
    """Of a few bytes in the transport's buffer nobody knows whether they left before the end."""
    pool = FakeConnections()
    connection, transport = await pool.new(reused=reused)
    transport.stall()
    connection.send((REQUEST[0], b"x" * size))
    task = asyncio.create_task(connection.answer())
    await asyncio.sleep(0)
    if drained:
        transport.drain()
    transport.lose(ConnectionResetError())
    with pytest.raises(ConnectionBroken) as caught:
        await task
    other = Retry.REUSED_ONLY if reused else Retry.BEFORE_HAND_OFF
    assert caught.value.retry is (Retry.UNSENT if unsent else other)
