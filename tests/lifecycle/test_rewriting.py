"""A stream that is rewritten on its way, under both kinds of client."""

import asyncio
from functools import partial

import pytest
from client_worlds import END, EVENT, FRAME, OtherServer, OwnServer, World, source
from fake_pool import settle

from proxy.errors import BrokenAnswer, ClientGone, ConnectionBroken, InternalFault, ProxyError
from proxy.lifecycle.client import Client, Relayed, Through
from proxy.lifecycle.rewriting import RewritingSink
from proxy.upstream.connection import Sink
from proxy.wire.chunks import chunk
from proxy.wire.rewriting import Rewriter, Rewriters, Untouched
from proxy.wire.sse import data_of, event


class Marks(Untouched):
    """Doubles events and adds one; fails at one that it cannot take."""

    def event(self, event: bytes) -> bytes:
        data = data_of(event)
        if data == b"bad":
            raise ZeroDivisionError
        return b"" if data == b"drop" else event + event

    def end(self) -> bytes:
        return event(b"end")


@pytest.fixture(params=[OwnServer, OtherServer], ids=["own", "any"])
async def world(request: pytest.FixtureRequest) -> World:
    return request.param()


class Flow:
    """A worker's stream, relayed through rewriters."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.relayed: list[Relayed] = []
        self.between_events: list[bool] = []

    async def begin(self, held: bytes = b"", *rewriters: Rewriter) -> None:
        self.worker = await source(held)
        through: Through = partial(_sink, rewriters=rewriters or (Marks(),), fail=self._fail)

        async def behave(client: Client) -> None:
            client.watch(lambda: self._fail(ClientGone("left")))
            relayed = await client.relay(200, [], self.worker.connection, through)
            self.relayed.append(relayed)
            self.between_events.append(client.between_events)
            if relayed.error is not None and not client.gone:
                await client.break_off(b"data: error\n\n")

        await self.world.serve(behave)

    def _fail(self, error: ProxyError) -> None:
        self.worker.connection.abort(self.worker.exchange, error)

    async def receive(self, data: bytes) -> bytes:
        self.worker.transport.receive(data)
        await settle()
        return self.world.got()[2]


def _sink(sink: Sink, rewriters: tuple[Rewriter, ...], fail: partial[None]) -> Sink:
    return RewritingSink(sink, Rewriters(rewriters), fail)


async def test_events_go_on_as_they_come(world: World) -> None:
    flow = Flow(world)
    await flow.begin(FRAME)
    assert world.got()[2] == EVENT * 2
    assert await flow.receive(chunk(b"data: ")) == EVENT * 2
    assert await flow.receive(chunk(b"1\n") + b"1\r\n") == EVENT * 2
    assert await flow.receive(b"\n\r\n") == EVENT * 4
    assert await flow.receive(chunk(b"data: drop\n\n")) == EVENT * 4
    assert await flow.receive(FRAME + END) == EVENT * 6 + b"data: end\n\n"
    assert world.complete
    ((error, size, first_byte_at),) = flow.relayed
    assert error is None
    assert size >= len(EVENT * 6 + b"data: end\n\n")
    assert first_byte_at > 0
    assert flow.worker.pool.counts == (1, 1)


@pytest.mark.parametrize("at", range(len(FRAME) + 1))
async def test_a_frame_cut_anywhere(world: World, at: int) -> None:
    flow = Flow(world)
    await flow.begin(FRAME[:at])
    assert await flow.receive(FRAME[at:]) == EVENT * 2
    assert await flow.receive(END) == EVENT * 2 + b"data: end\n\n"
    assert world.complete


async def test_an_end_without_a_blank_line(world: World) -> None:
    flow = Flow(world)
    await flow.begin(b"", Untouched())
    assert await flow.receive(chunk(b"data: 1\n")) == b""
    assert await flow.receive(END) == b"data: 1\n"
    assert world.complete


async def test_a_whole_answer_that_was_held(world: World) -> None:
    flow = Flow(world)
    await flow.begin(FRAME + END)
    await settle()
    assert world.got()[2] == EVENT * 2 + b"data: end\n\n"
    assert world.complete


async def test_a_worker_that_breaks_off_inside_an_event(world: World) -> None:
    """The client has got no part of it, so it can be told what happened."""
    flow = Flow(world)
    await flow.begin(FRAME + chunk(b"data: {"))
    flow.worker.transport.lose()
    await settle()
    assert world.got()[2] == EVENT * 2 + b"data: error\n\n"
    assert world.complete
    assert isinstance(flow.relayed[0].error, ConnectionBroken)
    assert flow.between_events == [True]


@pytest.mark.parametrize("last", [b"", END], ids=["within", "at the end"])
async def test_a_rewriter_that_fails(world: World, last: bytes, caplog: pytest.LogCaptureFixture) -> None:
    flow = Flow(world)
    await flow.begin(FRAME)
    got = await flow.receive(chunk(b"data: bad\n\n") + FRAME + last)
    assert got == EVENT * 2 + b"data: error\n\n"
    assert world.complete
    assert isinstance(flow.relayed[0].error, InternalFault)
    assert "exception in a rewriter" in caplog.text
    assert flow.worker.transport.aborted is not bool(last)  # a complete exchange leaves a good connection


async def test_an_event_without_an_end(world: World) -> None:
    flow = Flow(world)
    await flow.begin(FRAME)
    for _ in range(17):
        await flow.receive(chunk(b"x" * (1 << 20)))
    assert isinstance(flow.relayed[0].error, BrokenAnswer)
    assert flow.worker.transport.aborted
    assert world.got()[2] == EVENT * 2 + b"data: error\n\n"


async def test_the_client_leaves(world: World) -> None:
    flow = Flow(world)
    await flow.begin(FRAME)
    world.leave()
    await settle()
    assert flow.worker.transport.aborted
    assert isinstance(flow.relayed[0].error, ClientGone)
    assert flow.worker.pool.counts == (0, 0)


async def test_a_slow_client_pauses_the_worker(world: World) -> None:
    flow = Flow(world)
    await flow.begin(b"", Untouched())
    world.stall()
    big = event(b"x" * 0x8000)
    sent = 0
    while flow.worker.transport.reading:
        flow.worker.transport.receive(chunk(big))
        await settle()
        sent += len(big)
        assert sent < 10 * len(big)
    world.drain()
    await settle()
    assert flow.worker.transport.reading
    assert len(await flow.receive(END)) == sent
    assert world.complete


async def test_cancelled_while_relaying() -> None:
    world = OtherServer()
    flow = Flow(world)
    await flow.begin(FRAME)
    world.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await world.task
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_comments_while_an_event_is_held(world: World) -> None:
    """They stand between events, however little of the first one has come."""
    worker = await source(FRAME[:8])

    async def behave(client: Client) -> None:
        relaying = asyncio.create_task(
            client.relay(200, [], worker.connection, partial(_sink, rewriters=(Untouched(),), fail=None))
        )
        await settle()
        assert client.comment([])
        await settle()
        worker.transport.receive(FRAME[8:])
        await settle()
        assert not client.comment([])
        worker.transport.receive(END)
        assert (await relaying).error is None

    await world.serve(behave)
    async with asyncio.timeout(5):
        while not world.complete:
            await settle()
    assert world.got()[2] == b": keep-alive\n\n" + EVENT
    assert world.complete
