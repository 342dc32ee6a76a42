"""Comments that keep a waiting client's connection alive."""

import asyncio

import pytest
from client_worlds import END, EVENT, FRAME, OtherServer, OwnServer, World, source
from fake_pool import settle

from proxy.lifecycle.client import Client


@pytest.fixture(params=[OwnServer, OtherServer], ids=["own", "any"])
async def world(request: pytest.FixtureRequest) -> World:
    return request.param()


async def test_comments_before_an_answer(world: World) -> None:
    go = asyncio.Event()

    async def behave(client: Client) -> None:
        assert client.comment([(b"content-type", b"text/event-stream")])
        assert client.comment([])
        await go.wait()
        assert client.begun
        await client.respond(503, [(b"content-type", b"application/json")], b'{"error":{}}')
        assert not client.comment([])

    await world.serve(behave)
    await settle()
    status, headers, body = world.got()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert body.startswith(b":")
    go.set()
    await settle()
    body = world.got()[2]
    assert b"data: " in body
    assert world.complete


async def test_comments_before_a_relay(world: World) -> None:
    worker = await source()

    async def behave(client: Client) -> None:
        assert client.comment([(b"content-type", b"text/event-stream")])
        await client.relay(200, [], worker.connection)
        assert not client.comment([])

    await world.serve(behave)
    worker.transport.receive(FRAME)
    worker.transport.receive(END)
    await settle()
    body = world.got()[2]
    assert body.startswith(b":")
    assert body.endswith(EVENT)
    assert body.count(EVENT) == 1


async def test_no_comment_for_a_client_that_has_left(world: World) -> None:
    go = asyncio.Event()
    sent: list[bool] = []

    async def behave(client: Client) -> None:
        client.watch(lambda: None)
        await go.wait()
        sent.append(client.comment([]))

    await world.serve(behave)
    world.leave()
    await settle()
    go.set()
    await settle()
    assert sent == [False]
