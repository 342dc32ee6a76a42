"""The pool with scripted connects and a clock that the tests move."""

import asyncio
import random
import socket
import ssl

import pytest
from fake_pool import REQUEST, FakeConnections, settle

from proxy.errors import ClientGone, ConnectFailed, LegTimeout, Retry
from proxy.upstream.connection import WorkerConnection
from proxy.upstream.pool import IDLE_LIMIT, ConnectAttempt

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


async def idle(pool: FakeConnections, number: int) -> list[WorkerConnection]:
    """Idle connections, the first one the longest, a tenth of a second apart."""
    connections = [(await pool.new())[0] for _ in range(number)]
    for connection in connections:
        pool.loop.advance(0.1)
        pool.give_back(connection)
    return connections


async def test_the_most_recently_used_one_comes_first() -> None:
    pool = FakeConnections()
    first, second, third = await idle(pool, 3)
    assert pool.counts == (3, 3)
    assert pool.take_idle() is third
    assert pool.take_idle() is second
    pool.give_back(third)
    assert pool.take_idle() is third
    assert pool.take_idle() is first
    assert pool.take_idle() is None


async def test_there_is_no_limit_unless_one_is_set() -> None:
    pool = FakeConnections()
    await asyncio.gather(*(pool.connect().future for _ in range(1000)))
    assert pool.counts == (1000, 0)


async def test_idle_connections_expire_before_the_worker_closes_them() -> None:
    pool = FakeConnections()
    await idle(pool, 3)
    assert IDLE_LIMIT < 5
    pool.loop.advance(IDLE_LIMIT - 0.25)
    assert pool.counts == (3, 3)
    pool.loop.advance(0.1)
    assert pool.idle_connections == 2
    pool.loop.advance(0.1)
    assert pool.idle_connections == 1
    pool.loop.advance(0.1)
    await settle()
    assert pool.counts == (0, 0)
    assert pool.loop.armed == []


async def test_an_expired_connection_is_not_handed_out_even_before_the_sweep() -> None:
    pool = FakeConnections()
    await idle(pool, 2)
    pool.loop._now += IDLE_LIMIT  # a blocked event loop: no timer has run
    assert pool.take_idle() is None
    await settle()
    assert pool.counts == (0, 0)


async def test_a_connection_in_use_survives_the_sweep() -> None:
    pool = FakeConnections()
    (connection,) = await idle(pool, 1)
    assert pool.take_idle() is connection
    pool.loop.advance(IDLE_LIMIT * 3)
    assert pool.counts == (1, 0)
    pool.give_back(connection)
    assert pool.loop.armed == [IDLE_LIMIT]


async def test_a_lost_idle_connection_is_forgotten() -> None:
    pool = FakeConnections()
    first, second = await idle(pool, 2)
    pool.transports[1].lose()
    assert pool.counts == (1, 1)
    pool.transports[0].receive_eof()
    assert pool.take_idle() is None
    await settle()
    assert pool.counts == (0, 0)
    assert not first.usable
    assert not second.usable


async def test_a_cap_makes_the_surplus_wait_in_order() -> None:
    pool = FakeConnections(max_connections=2)
    a, b = (await pool.new())[0], (await pool.new())[0]
    waiting = [pool.connect() for _ in range(3)]
    await settle()
    assert not any(attempt.future.done() for attempt in waiting)
    pool.give_back(b)  # given on, not idle
    assert (await waiting[0].future) is b
    assert b.reused
    assert pool.counts == (2, 0)
    pool.transports[0].lose()  # a new connection in the place of a
    fresh = await waiting[1].future
    assert fresh is not a
    assert not fresh.reused
    assert not waiting[2].future.done()
    pool.give_back(fresh)
    assert (await waiting[2].future) is fresh
    pool.give_back(fresh)
    assert pool.counts == (2, 1)


async def test_an_aborted_waiter_is_passed_over() -> None:
    pool = FakeConnections(max_connections=1)
    connection, _ = await pool.new()
    first, second, third = (pool.connect() for _ in range(3))
    first.abort(0, ClientGone("x"))
    second.future.cancel()
    pool.give_back(connection)
    assert (await third.future) is connection
    with pytest.raises(ClientGone):
        await first.future


async def test_a_failed_connect_frees_its_place() -> None:
    pool = FakeConnections(max_connections=1)
    pool.errors = [ConnectionRefusedError(), OSError("x")]
    attempts = [pool.connect() for _ in range(3)]
    for attempt in attempts[:2]:
        with pytest.raises(ConnectFailed):
            await attempt.future
    assert (await attempts[2].future).usable
    assert pool.counts == (1, 0)


async def test_a_fresh_connection_at_the_cap_takes_the_place_of_the_oldest_idle_one() -> None:
    pool = FakeConnections(max_connections=2)
    oldest, newest = await idle(pool, 2)
    fresh = await pool.connect().future
    assert fresh not in (oldest, newest)
    assert not oldest.usable
    assert pool.counts == (2, 1)
    assert pool.take_idle() is newest


@pytest.mark.parametrize("how", ["aborted", "cancelled", "given up"])
async def test_a_connection_that_comes_too_late_goes_to_the_pool(how: str) -> None:
    pool = FakeConnections()
    gate = asyncio.get_running_loop().create_future()
    pool.gates = [gate]
    attempt = pool.connect()
    await settle()
    if how == "aborted":
        attempt.abort(0, ClientGone("x"))
    elif how == "cancelled":
        attempt.future.cancel()
    else:
        attempt.give_up()
    gate.set_result(None)
    await settle()
    assert pool.counts == (1, 1)
    connection = pool.take_idle()
    assert connection is not None
    assert connection.reused  # it has been idle: the worker may have closed it


async def test_a_connection_that_nobody_took_goes_to_the_pool() -> None:
    """The task was cancelled, or the client left, between the connection's coming and the task's waking."""
    pool = FakeConnections()
    attempt = pool.connect()
    await attempt.future
    assert pool.counts == (1, 0)
    attempt.give_up()
    assert pool.counts == (1, 1)


async def test_giving_up_what_failed_or_was_lost_does_nothing() -> None:
    pool = FakeConnections()
    pool.errors = [OSError()]
    failed = pool.connect()
    await settle()
    failed.give_up()
    aborted = pool.connect()
    aborted.abort(0, ClientGone("x"))
    aborted.give_up()
    await settle()
    assert pool.counts == (1, 1)
    lost = pool.connect()
    await lost.future
    pool.transports[-1].lose()
    lost.give_up()
    await settle()
    assert pool.counts == (1, 1)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connect call failed ('10.0.0.7', 8001)"),
        OSError("Multiple exceptions"),
        socket.gaierror(-2, "Name or service not known"),
        ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate"),
        UnicodeError("label empty or too long"),  # a name that cannot be resolved
        RuntimeError("from the loop"),
    ],
)
async def test_whoever_waits_hears_of_any_failure(error: Exception) -> None:
    pool = FakeConnections()
    pool.errors = [error]
    with pytest.raises(ConnectFailed) as caught:
        await pool.connect().future
    assert caught.value.retry is Retry.UNSENT
    assert "10.0.0.7" not in caught.value.message
    assert pool.counts == (0, 0)


async def test_connecting_takes_too_long() -> None:
    pool = FakeConnections(connect_timeout=0.001)
    pool.gates = [asyncio.get_running_loop().create_future()]
    with pytest.raises(LegTimeout) as caught:
        await pool.connect().future
    assert caught.value.retry is Retry.UNSENT  # nothing was sent
    assert pool.counts == (0, 0)


async def test_close() -> None:
    pool = FakeConnections(max_connections=3)
    (connection,) = await idle(pool, 1)
    busy, transport = await pool.new()
    busy.send(REQUEST)
    task = asyncio.create_task(busy.answer())
    pool.gates = [asyncio.get_running_loop().create_future()]
    connecting = pool.connect()
    await settle()
    waiting = [pool.connect(), pool.connect()]
    await pool.close()
    await settle()
    assert not connection.usable
    assert transport.aborted
    for attempt in (connecting, *waiting):
        with pytest.raises(ConnectFailed):
            await attempt.future
    with pytest.raises(Exception, match="closed the connection"):
        await task
    await settle()
    assert pool.counts == (0, 0)
    assert pool.loop.armed == []
    with pytest.raises(ConnectFailed):
        await pool.connect().future
    pool.give_back(connection)
    assert pool.counts == (0, 0)


async def test_close_before_a_connect_has_begun() -> None:
    pool = FakeConnections()
    attempt = pool.connect()
    await pool.close()
    with pytest.raises(ConnectFailed):
        await attempt.future


async def test_no_connection_enters_a_closed_pool() -> None:
    pool = FakeConnections()
    connection, transport = await pool.new()
    await pool.close()
    pool.give_back(connection)
    await settle()
    assert transport.aborted
    assert pool.counts == (0, 0)


@pytest.mark.parametrize("cap", [0, 1, 4])
@pytest.mark.parametrize("seed", range(12))
async def test_counts_are_right_after_anything(seed: int, cap: int) -> None:
    """Random connects, answers, aborts, losses, time: in the end every place is free and every timer disarmed."""
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    dice = random.Random(seed * 10 + cap)
    pool = FakeConnections(max_connections=cap)
    attempts: list[ConnectAttempt] = []
    running: list[tuple[WorkerConnection, int, asyncio.Task[object]]] = []

    def start(connection: WorkerConnection) -> None:
        exchange = connection.send(REQUEST)
        running.append((connection, exchange, asyncio.create_task(connection.answer())))

    for _ in range(400):
        action = dice.choice(
            ["request"] * 4 + ["answer"] * 3 + ["abort", "cancel", "lose", "time", "give up", "turn"]
        )
        if action == "request":
            connection = pool.take_idle()
            if connection is not None:
                start(connection)
            else:
                if dice.random() < 0.2:
                    pool.errors.append(ConnectionRefusedError())
                attempts.append(pool.connect())
        elif action == "answer" and running:
            connection, _, _ = dice.choice(running)
            transport = connection._transport
            if transport is not None:
                await asyncio.sleep(0)
                transport.receive(ANSWER + (b"x" if dice.random() < 0.1 else b""))  # type: ignore[attr-defined]
        elif action == "abort" and running:
            connection, exchange, _ = dice.choice(running)
            connection.abort(exchange, ClientGone("x"))
        elif action == "cancel" and running:
            dice.choice(running)[2].cancel()
        elif action == "lose" and pool.transports:
            dice.choice(pool.transports).lose(dice.choice([None, ConnectionResetError()]))
        elif action == "time":
            pool.loop.advance(dice.choice([0.1, 1.0, IDLE_LIMIT]))
        elif action == "give up" and attempts:
            attempts.pop(dice.randrange(len(attempts))).give_up()
        elif action == "turn":
            await settle()
        for attempt in list(attempts):
            if attempt.future.done():
                attempts.remove(attempt)
                if not attempt.future.cancelled() and attempt.future.exception() is None:
                    start(attempt.future.result())
        alive = sum(transport.is_closing() is False for transport in pool.transports)
        assert not cap or alive <= cap
        assert pool.idle_connections <= pool.open_connections
    for connection, exchange, _ in running:
        connection.abort(exchange, ClientGone("x"))
    for attempt in attempts:
        attempt.give_up()
    await asyncio.gather(*(task for _, _, task in running), return_exceptions=True)
    await settle()
    assert pool.open_connections == pool.idle_connections
    pool.loop.advance(IDLE_LIMIT * 2)
    await settle()
    assert pool.counts == (0, 0)
    assert pool._connecting == {}
    assert not any(not attempt.future.done() for attempt in pool._waiting)
    assert pool.loop.armed == []
    assert problems == []
