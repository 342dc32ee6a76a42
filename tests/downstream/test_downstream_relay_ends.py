"""Relays that do not come to their end: the client leaves, the worker breaks off, the application returns."""

import asyncio
from typing import Any

import pytest
from fake_downstream import GET, App, Connection, Held, settle
from fake_pool import REQUEST
from relay_world import END, EVENT, FRAME, HEAD, OLD, OUT, TYPE, Relay

from proxy.errors import ClientGone, ConnectionBroken


@pytest.fixture
async def relay() -> Relay:
    return Relay()


@pytest.mark.parametrize("how", ["eof", "lost", "reset"])
async def test_a_client_that_leaves_ends_the_exchange_at_once(relay: Relay, how: str) -> None:
    await relay.begin()
    relay.cycle.watch(lambda: relay.source.abort(relay.exchange, ClientGone("left")))
    relay.worker.receive(FRAME)
    relay.client.take()
    if how == "eof":
        relay.client.transport.receive_eof()
    else:
        relay.client.transport.lose(None if how == "lost" else ConnectionResetError())
    assert relay.worker.aborted  # in the same turn of the loop
    assert isinstance(relay.sink.done.result(), ClientGone)
    relay.sink.write(FRAME)
    relay.sink.flush_head()
    relay.sink.end(FRAME)
    relay.sink.broken(ConnectionBroken("x", retry=ConnectionBroken.retry))
    relay.sink.pause()
    relay.sink.resume()
    relay.sink.close(EVENT)
    relay.sink.abort()
    assert isinstance(relay.sink.done.result(), ClientGone)
    assert relay.client.take() == b""
    await relay.finish()
    assert relay.pool.counts == (0, 0)
    assert relay.client.loop.armed == []


async def test_a_client_that_left_before_the_relay_began(relay: Relay) -> None:
    relay.client = Connection(App(relay.held))
    await relay.client.send(GET)
    relay.cycle = relay.held.cycles[-1]
    for held in (b"", FRAME, FRAME + END):
        relay.source, relay.worker = await relay.pool.new()
        exchange = relay.source.send(REQUEST)
        task = asyncio.create_task(relay.source.head())
        await asyncio.sleep(0)
        relay.worker.receive(HEAD + held)
        await task
        relay.client.transport.lose()
        relay.start(TYPE)
        assert isinstance(relay.sink.done.result(), ClientGone)
        relay.source.abort(exchange, ClientGone("left"))
    assert relay.client.take() == b""
    await relay.finish()


@pytest.mark.parametrize("sent", [b"", FRAME, FRAME + b"9\r\ndata: 2\n\n", b"1\r\nd\r\n8\r\nata: 1\n\n\r\n"])
@pytest.mark.parametrize("request_line", [GET, OLD], ids=["1.1", "1.0"])
async def test_an_error_event_between_two_events(relay: Relay, sent: bytes, request_line: bytes) -> None:
    await relay.begin(request=request_line)
    if sent:
        relay.worker.receive(sent)
    relay.worker.lose()
    assert isinstance(relay.sink.done.result(), ConnectionBroken)
    assert relay.sink.between_events
    relay.sink.close(b"data: error\n\n")
    (response,) = relay.client.responses()
    assert response.body.endswith(b"data: error\n\n")
    # A client of HTTP/1.1 has been told of a complete message and of no close: it may have sent its next request.
    assert relay.client.closed is (request_line is OLD)
    await relay.finish()
    if request_line is GET:
        await relay.client.send(GET)
        assert relay.held.cycles[-1] is not relay.cycle
        relay.client.transport.lose()
    assert relay.client.loop.armed == []
    assert relay.pool.counts == (0, 0)


async def test_close_without_an_event(relay: Relay) -> None:
    await relay.begin()
    relay.worker.receive(FRAME)
    relay.worker.lose()
    relay.sink.close()
    (response,) = relay.client.responses()
    assert response.body == EVENT
    relay.sink.close(b"again")
    assert relay.client.take() == b""
    await relay.finish()


@pytest.mark.parametrize("sent", [b"3\r\ndat\r\n", b"9\r\ndata: 1\n", FRAME + b"1\r\nd\r\n"])
async def test_inside_an_event_the_connection_is_aborted(
    relay: Relay, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await relay.begin()
    relay.worker.receive(sent)
    relay.worker.lose()
    assert not relay.sink.between_events
    relay.sink.abort()
    assert relay.client.transport.aborted
    relay.held.release()
    await settle()
    assert not relay.client.take().endswith(END)
    assert caplog.records == []  # the application did what it could
    assert relay.client.loop.armed == []


async def test_nothing_is_added_to_a_body_of_known_length(relay: Relay) -> None:
    await relay.begin(
        head=b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n", headers=[(b"content-length", b"90")]
    )
    relay.worker.receive(EVENT)
    relay.worker.lose()
    assert not relay.sink.between_events
    relay.sink.abort()
    assert relay.client.transport.aborted
    await relay.finish()


async def test_an_application_that_returns_before_the_relay_ends_cuts_it_off(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    await relay.begin()
    relay.worker.receive(FRAME)
    relay.held.release()
    await settle()
    assert relay.client.closed
    assert "without completing" in caplog.text
    relay.worker.receive(FRAME)
    assert relay.client.take() == OUT + FRAME


async def test_watch() -> None:
    held = Held()
    connection = Connection(App(held))
    calls: list[Any] = []
    await connection.send(GET)
    cycle = held.cycles[0]
    cycle.watch(lambda: calls.append("first"))
    cycle.watch(lambda: calls.append("second"))
    connection.transport.lose()
    assert calls == ["second"]
    cycle.watch(lambda: calls.append("late"))
    assert calls == ["second", "late"]
    cycle.watch(None)
    held.release()
    await settle()
    assert calls == ["second", "late"]


async def test_watch_ends_with_the_answer() -> None:
    held = Held()
    connection = Connection(App(held))
    calls: list[Any] = []
    await connection.send(GET)
    cycle = held.cycles[0]
    cycle.watch(lambda: calls.append("left"))
    cycle.respond(200, [], b"")
    held.release()
    await settle()
    connection.transport.lose()
    assert calls == []
    assert not cycle.disconnected
    await settle()
