"""How connections end: idle ones, those of clients that do not read, those of a server that stops."""

import pytest
from fake_downstream import GET, App, Connection, Held, settle

from proxy.downstream.limits import Limits
from proxy.downstream.protocol import RelayProtocol

CLOSE = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


async def test_keep_alive() -> None:
    connection = Connection(App(), timeout_keep_alive=75)
    await connection.send(GET)
    connection.loop.advance(74)
    assert not connection.closed
    await connection.send(GET)
    connection.loop.advance(74)
    assert not connection.closed
    assert len(connection.responses()) == 2
    connection.loop.advance(1)
    assert connection.closed
    await settle()
    assert connection.loop.armed == []
    assert connection.state.connections == set()


async def test_keep_alive_does_not_run_during_a_request() -> None:
    held = Held()
    connection = Connection(App(held), timeout_keep_alive=5)
    await connection.send(GET)
    connection.loop.advance(1000)
    assert not connection.closed
    held.cycles[0].respond(200, [], b"")
    held.release()
    await settle()
    assert connection.loop.armed == [5]


async def test_stray_line_ends_do_not_keep_a_connection_alive() -> None:
    """Some old clients send one behind the body of a POST (RFC 9112 §2.2)."""
    for stray in (b"\r\n", b"\r", b"\r\n\r\n"):
        connection = Connection(App(), timeout_keep_alive=75)
        await connection.send(GET)
        connection.loop.advance(50)
        await connection.send(stray)
        connection.loop.advance(25)
        assert connection.closed
        connection = Connection(App(), timeout_keep_alive=75)
        await connection.send(GET + stray)  # held until the answer
        await connection.send(GET)
        assert len(connection.responses()) == 2
        await connection.send(stray)
        connection.loop.advance(75)
        assert connection.closed


async def test_closing_waits_for_the_client_to_read_but_not_for_ever() -> None:
    connection = Connection(App(), Limits(close_timeout=5))
    connection.transport.stall()
    await connection.send(CLOSE)
    assert connection.closed
    connection.loop.advance(4)
    assert not connection.transport.aborted
    assert connection.state.connections
    connection.loop.advance(1)
    assert connection.transport.aborted
    await settle()
    assert connection.state.connections == set()
    assert connection.loop.armed == []


async def test_a_client_that_reads_in_time() -> None:
    connection = Connection(App(), Limits(close_timeout=5))
    connection.transport.stall()
    await connection.send(CLOSE)
    connection.loop.advance(4)
    connection.transport.drain()
    await settle()
    assert not connection.transport.aborted
    assert connection.state.connections == set()
    assert connection.loop.armed == []


async def test_an_idle_client_that_has_not_read_its_answer() -> None:
    connection = Connection(App(), Limits(close_timeout=5), timeout_keep_alive=75)
    connection.transport.stall()
    await connection.send(GET)
    connection.loop.advance(75)
    assert connection.closed
    assert not connection.transport.aborted
    connection.loop.advance(5)
    assert connection.transport.aborted
    await settle()


async def test_a_client_that_half_closes_has_left_even_if_it_does_not_read() -> None:
    left = []
    held = Held()
    connection = Connection(App(held), Limits(close_timeout=5))
    connection.transport.stall()
    await connection.send(GET)
    cycle = held.cycles[0]
    cycle.watch(lambda: left.append(True))
    await cycle.send({"type": "http.response.start", "status": 200})
    await cycle.send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
    connection.transport.receive_eof()
    assert left == [True]
    with pytest.raises(OSError, match="disconnected"):
        await cycle.send({"type": "http.response.body", "body": b"y"})
    held.release()
    connection.loop.advance(5)
    assert connection.transport.aborted
    await settle()
    assert connection.state.connections == set()


async def test_a_client_that_half_closes_behind_its_answer_still_gets_it() -> None:
    connection = Connection(App())
    connection.transport.stall()
    await connection.send(GET)
    connection.transport.receive_eof()
    assert connection.closed
    assert not connection.transport.aborted
    connection.transport.drain()
    await settle()
    assert connection.responses()[0].status == 200
    assert connection.loop.armed == []


async def test_no_limit_on_closing() -> None:
    connection = Connection(App(), Limits(close_timeout=0))
    connection.transport.stall()
    await connection.send(CLOSE)
    connection.loop.advance(10_000)
    assert not connection.transport.aborted
    connection.transport.drain()
    await settle()


async def test_shutdown_of_an_idle_connection() -> None:
    for sent in (b"", GET, b"GET / HT"):
        connection = Connection(App())
        if sent:
            await connection.send(sent)
        connection.protocol.shutdown()
        assert connection.closed
        await settle()
        assert connection.loop.armed == []


async def test_shutdown_lets_a_request_finish() -> None:
    held = Held()
    connection = Connection(App(held))
    await connection.send(GET + GET)
    connection.protocol.shutdown()
    assert not connection.closed
    held.cycles[0].respond(200, [], b"ok")
    held.release()
    await settle()
    (response,) = connection.responses()
    assert response.headers["connection"] == "close"
    assert connection.closed


async def test_shutdown_lets_a_request_arrive() -> None:
    connection = Connection(App())
    await connection.send(b"POST / HTTP/1.1\r\nhost: p\r\ncontent-length: 4\r\n\r\n12")
    assert connection.protocol.receiving
    RelayProtocol.draining.add(connection.state)
    try:
        connection.protocol.shutdown()
        assert not connection.closed
        await connection.send(b"34")
        assert not connection.protocol.receiving
    finally:
        RelayProtocol.draining.discard(connection.state)
    (response,) = connection.responses()
    assert response.headers["connection"] == "close"
    assert connection.closed


async def test_a_stopping_server_ends_connections_with_their_answers() -> None:
    held = Held()
    running, idle, other = (Connection(App(held)) for _ in range(3))
    await running.send(GET)
    for connection in (running, idle):
        RelayProtocol.draining.add(connection.state)
    try:
        assert running.protocol.stopping
        assert not other.protocol.stopping
        assert not idle.closed
        for connection in (idle, other):
            await connection.send(GET)
        for number, connection in enumerate((running, idle, other)):
            held.cycles[number].respond(200, [], b"ok")
            (response,) = connection.responses()
            assert ("connection" in response.headers) is (connection is not other)
            assert connection.closed is (connection is not other)
    finally:
        RelayProtocol.draining.clear()
    for number in range(3):
        held.release(number)
    await settle()
