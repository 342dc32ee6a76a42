"""The two kinds of client over one suite: on our own server, and on any ASGI server."""

import asyncio

import pytest
from client_worlds import END, EVENT, FRAME, OtherServer, OwnServer, World, source
from fake_pool import settle

from proxy.errors import ClientGone, ConnectionBroken
from proxy.lifecycle.client import Client


@pytest.fixture(params=[OwnServer, OtherServer], ids=["own", "any"])
async def world(request: pytest.FixtureRequest) -> World:
    return request.param()


async def test_respond(world: World) -> None:
    async def behave(client: Client) -> None:
        assert not client.gone
        await client.respond(429, [(b"retry-after", b"1")], b"busy")
        assert client.status == 429

    await world.serve(behave)
    status, headers, body = world.got()
    assert (status, body) == (429, b"busy")
    assert headers["retry-after"] == "1"
    assert headers["content-length"] == "4"
    assert world.complete


async def test_respond_to_a_client_that_has_left(world: World) -> None:
    go = asyncio.Event()
    ended: list[BaseException] = []

    async def behave(client: Client) -> None:
        client.watch(lambda: None)
        await go.wait()
        assert client.gone
        try:
            await client.respond(200, [], b"x")
        except ClientGone as error:
            ended.append(error)

    await world.serve(behave)
    world.leave()
    await settle()
    go.set()
    await settle()
    assert len(ended) == 1


async def test_relay(world: World) -> None:
    relayed = []
    worker = await source(FRAME)

    async def behave(client: Client) -> None:
        relayed.append(await client.relay(200, [(b"content-type", b"text/event-stream")], worker.connection))
        assert client.status == 200

    await world.serve(behave)
    status, headers, body = world.got()
    assert (status, headers["content-type"], body) == (200, "text/event-stream", EVENT)
    worker.transport.receive(FRAME)
    await settle()
    assert world.got()[2] == EVENT * 2  # flushed, not gathered
    worker.transport.receive(FRAME + END)
    await settle()
    assert world.got()[2] == EVENT * 3
    assert world.complete
    ((error, size, first_byte_at),) = relayed
    assert error is None
    assert size >= 3 * len(EVENT)
    assert first_byte_at > 0
    assert worker.pool.counts == (1, 1)


async def test_the_head_does_not_wait_for_the_body(world: World) -> None:
    worker = await source()

    async def behave(client: Client) -> None:
        await client.relay(200, [], worker.connection)

    await world.serve(behave)
    assert world.got()[0] == 200
    worker.transport.receive(END)
    await settle()
    assert world.complete


async def test_watch_while_relaying(world: World) -> None:
    worker = await source(FRAME)
    relayed = []

    async def behave(client: Client) -> None:
        client.watch(lambda: worker.connection.abort(worker.exchange, ClientGone("left")))
        relayed.append(await client.relay(200, [], worker.connection))
        assert client.gone
        await client.break_off(b"nobody reads this")

    await world.serve(behave)
    world.leave()
    await settle()
    assert worker.transport.aborted
    assert isinstance(relayed[0].error, ClientGone)
    assert worker.pool.counts == (0, 0)


async def test_watch_before_there_is_anything_to_relay(world: World) -> None:
    calls: list[str] = []
    done = asyncio.Event()

    async def behave(client: Client) -> None:
        client.watch(lambda: calls.append("left"))
        await done.wait()
        client.watch(lambda: calls.append("late"))

    await world.serve(behave)
    world.leave()
    await settle()
    assert calls == ["left"]
    done.set()
    await settle()
    assert calls == ["left", "late"]


async def test_a_closed_client_is_not_watched(world: World) -> None:
    calls: list[str] = []

    async def behave(client: Client) -> None:
        client.watch(lambda: calls.append("left"))
        await client.respond(200, [], b"x")

    await world.serve(behave)
    world.leave()
    await settle()
    assert calls == []


async def test_a_worker_that_breaks_off_between_two_events(world: World) -> None:
    worker = await source(FRAME)

    async def behave(client: Client) -> None:
        relayed = await client.relay(200, [], worker.connection)
        assert isinstance(relayed.error, ConnectionBroken)
        assert client.between_events
        await client.break_off(b"data: error\n\n")

    await world.serve(behave)
    worker.transport.lose()
    await settle()
    assert world.got()[2] == EVENT + b"data: error\n\n"
    assert world.complete


async def test_a_worker_that_breaks_off_inside_an_event(world: World) -> None:
    worker = await source(FRAME + b"4\r\ndata\r\n")

    async def behave(client: Client) -> None:
        relayed = await client.relay(200, [], worker.connection)
        assert relayed.error is not None
        assert not client.between_events
        await client.break_off(None)

    await world.serve(behave)
    worker.transport.lose()
    await settle()
    assert world.got()[2] == EVENT + b"data"
    assert not world.complete


async def test_a_slow_client_pauses_the_worker(world: World) -> None:
    worker = await source()

    async def behave(client: Client) -> None:
        await client.relay(200, [], worker.connection)

    await world.serve(behave)
    world.stall()
    big = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    sent = 0
    while worker.transport.reading:
        worker.transport.receive(big)
        await settle()
        sent += 0x8000
        assert sent < 10 * 0x8000
    world.drain()
    await settle()
    assert worker.transport.reading
    worker.transport.receive(END)
    await settle()
    assert len(world.got()[2]) == sent
    assert world.complete


async def test_cancelled_while_relaying() -> None:
    """The request is cancelled at the end of a drain; the listener ends with it."""
    world = OtherServer()
    worker = await source(FRAME)

    async def behave(client: Client) -> None:
        client.watch(lambda: None)
        await client.relay(200, [], worker.connection)

    await world.serve(behave)
    world.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await world.task
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
