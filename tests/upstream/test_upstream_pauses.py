"""Back-pressure: a slow consumer pauses the worker's socket, and nothing else ever leaves it paused."""

import asyncio

from fake_pool import REQUEST, FakeConnections, Sink, settle
from fake_transport import FakeTransport

from proxy.upstream.connection import WorkerConnection

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
BIG = b"20000\r\n" + b"x" * 0x20000 + b"\r\n"  # 128 KiB
END = b"0\r\n\r\n"


class SlowSink(Sink):
    """Asks for a pause with each piece, as a client's full buffer does."""

    def __init__(self, source: WorkerConnection) -> None:
        super().__init__()
        self.source = source

    def write(self, data: bytes) -> None:
        super().write(data)
        self.source.pause()


async def with_head(pool: FakeConnections, after: bytes = b"") -> tuple[WorkerConnection, FakeTransport]:
    connection, transport = await pool.new()
    connection.send(REQUEST)
    task = asyncio.create_task(connection.head())
    await asyncio.sleep(0)
    transport.receive(HEAD + after)
    await task
    return connection, transport


async def test_pause_and_resume() -> None:
    pool = FakeConnections()
    connection, transport = await with_head(pool)
    connection.relay(Sink())
    pool.loop.advance(5)
    connection.pause()
    connection.pause()
    assert not transport.reading
    assert (connection.reading_paused, connection.paused_since) == (True, pool.loop.time())
    pool.loop.advance(7)
    connection.resume()
    connection.resume()
    assert transport.reading
    assert (connection.reading_paused, connection.last_read) == (False, pool.loop.time())


async def test_what_nobody_asks_for_is_held_up_to_a_limit() -> None:
    pool = FakeConnections()
    connection, transport = await with_head(pool, BIG)
    transport.receive(BIG)
    assert not transport.reading
    assert not connection.reading_paused  # the consumer is not to blame
    sink = Sink()
    connection.relay(sink)
    assert transport.reading
    assert len(sink.body) == 2 * 0x20000
    transport.receive(END)
    assert pool.counts == (1, 1)


async def test_held_bytes_that_fill_the_client_leave_the_worker_paused() -> None:
    pool = FakeConnections()
    connection, transport = await with_head(pool, BIG)
    transport.receive(BIG)
    sink = SlowSink(connection)
    connection.relay(sink)
    assert sink.pieces
    assert not transport.reading
    connection.resume()
    assert transport.reading


async def test_a_client_that_was_full_before_the_relay_began_leaves_the_worker_paused() -> None:
    for held in (b"", BIG):
        pool = FakeConnections()
        connection, transport = await with_head(pool, held)
        connection.pause()
        connection.relay(Sink())
        assert not transport.reading
        connection.resume()
        assert transport.reading


async def test_a_resume_does_not_lift_the_limit_on_held_bytes() -> None:
    pool = FakeConnections()
    connection, transport = await with_head(pool, BIG)
    transport.receive(BIG)
    connection.pause()
    connection.resume()
    assert not transport.reading
    connection.relay(Sink())
    assert transport.reading


async def test_an_idle_connection_is_never_paused() -> None:
    """An answer that was complete when its consumer asked for a pause: nobody resumes it later."""
    pool = FakeConnections()
    connection, transport = await with_head(pool, BIG + END)
    connection.pause()
    sink = Sink()
    connection.relay(sink)
    assert sink.last is not None
    assert pool.counts == (1, 1)
    assert transport.reading
    assert not connection.reading_paused

    connection, transport = await with_head(pool, BIG)
    transport.receive(BIG + END)  # beyond the limit, and complete
    assert not transport.reading
    assert len((await connection.rest()).body) == 2 * 0x20000
    assert transport.reading
    assert pool.counts == (2, 2)


async def test_lost_while_paused() -> None:
    pool = FakeConnections()
    connection, transport = await with_head(pool)
    sink = Sink()
    connection.relay(sink)
    connection.pause()
    transport.lose()
    connection.resume()
    connection.pause()
    connection.close()
    await settle()
    assert sink.error is not None
    assert pool.counts == (0, 0)


async def test_only_reads_of_a_relay_are_timed() -> None:
    pool = FakeConnections()
    connection, transport = await with_head(pool)
    pool.loop.advance(3)
    connection.relay(Sink())
    began = pool.loop.time()
    assert connection.last_read == began
    pool.loop.advance(2)
    transport.receive(b"2\r\n{}\r\n")
    assert connection.last_read == began + 2


async def test_a_socket_that_is_held_is_not_the_consumers_pause() -> None:
    pool = FakeConnections()
    connection, transport = await with_head(pool)
    connection.relay(Sink())
    connection.hold()
    connection.hold()
    assert not transport.reading
    assert not connection.reading_paused
    connection.release()
    connection.release()
    assert transport.reading


async def test_hold_and_pause_end_in_either_order() -> None:
    pool = FakeConnections()
    connection, transport = await with_head(pool)
    connection.relay(Sink())
    connection.hold()
    connection.pause()
    connection.release()
    assert not transport.reading
    connection.resume()
    assert transport.reading
    connection.pause()
    connection.hold()
    connection.resume()
    assert not transport.reading
    connection.release()
    assert transport.reading


async def test_a_closing_connection_is_neither_held_nor_released() -> None:
    pool = FakeConnections()
    connection, transport = await with_head(pool)
    connection.relay(Sink())
    connection.hold()
    transport.close()
    connection.release()
    assert not transport.reading
    other, closing = await with_head(pool)
    other.relay(Sink())
    closing.close()
    other.hold()
    assert closing.reading
