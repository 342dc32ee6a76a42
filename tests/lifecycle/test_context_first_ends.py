"""Requests that end early: streams that break off, clients that leave, times that pass."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from fake_pool import settle
from scripted_workers import (
    EVENT,
    FRAME,
    HAND_OFF,
    STREAM_HEAD,
    World,
    nothing,
    reply,
)

from proxy.errors import ClientGone, LegTimeout

MakeWorld = Callable[..., World]
GENERATED = {
    "id": "chatcmpl-1",
    "choices": [{"index": 0, "message": {"content": "Blue"}, "finish_reason": "stop"}],
}


# Streams that break off


async def test_an_error_event_between_two_events(make: MakeWorld) -> None:
    def step(transport: Any) -> None:
        transport.receive(STREAM_HEAD + FRAME)
        asyncio.get_running_loop().call_soon(transport.lose)

    world = make()
    world.script(c0=[reply(HAND_OFF)], g0=[step])
    assert await world.ask(stream=True) is None
    assert world.client.status == 200
    event = world.client.body.removeprefix(EVENT)
    assert json.loads(event.removeprefix(b"data: "))["error"]["code"] == "worker_disconnected"
    assert event.endswith(b"\n\n")
    assert not world.client.complete
    assert (world.record.outcome, world.record.status) == ("error", 200)
    assert not world.record.cut_inside_event
    assert world.log == ["c0", "g0"]


async def test_inside_an_event_the_answer_is_cut(make: MakeWorld) -> None:
    def step(transport: Any) -> None:
        transport.receive(STREAM_HEAD + FRAME + b"3\r\ndat\r\n")
        asyncio.get_running_loop().call_soon(transport.lose)

    world = make()
    world.client.between_events = False
    world.script(c0=[reply(HAND_OFF)], g0=[step])
    assert await world.ask(stream=True) is None
    assert world.client.cut
    assert world.client.body == EVENT + b"dat"
    assert world.record.cut_inside_event


async def test_a_stream_that_is_none_is_passed_on_as_what_it_is(make: MakeWorld) -> None:
    world = make()
    world.script(c0=[reply(HAND_OFF)], g0=[reply(GENERATED)])
    assert await world.ask(stream=True) is None
    assert world.client.headers[b"content-type"] == b"application/json"
    assert json.loads(world.client.body) == GENERATED


# Clients that leave and times that pass


@pytest.mark.parametrize("phase", ["context", "generation", "stream head", "stream"])
async def test_a_client_that_leaves(make: MakeWorld, phase: str) -> None:
    world = make()
    silent = "c0" if phase == "context" else "g0"
    world.script(c0=[reply(HAND_OFF)], g0=[nothing])
    world[silent].steps = [nothing]
    if phase == "stream":
        world.script(g0=[STREAM_HEAD + FRAME])
    task = world.start(stream=phase.startswith("stream"))
    while silent not in world.log:
        await asyncio.sleep(0)
    await settle()
    world.client.leave()
    assert world[silent].transports[-1].aborted  # in the same turn of the loop
    if phase == "stream":
        await task
        assert world.record.status == 499
    else:
        with pytest.raises(ClientGone):
            await task
    await settle()
    assert world.log == (["c0"] if phase == "context" else ["c0", "g0"])


@pytest.mark.parametrize("policy", ["drain", "drop"])
async def test_a_client_that_leaves_between_the_legs(make: MakeWorld, policy: str) -> None:
    world = make(on_disconnect_after_prefill=policy)

    def answer_and_leave(transport: Any) -> None:
        transport.receive(reply(HAND_OFF))
        world.client.leave()

    world.script(c0=[answer_and_leave], g0=[STREAM_HEAD + FRAME])
    assert isinstance(await world.ask(), ClientGone)
    while world.service.orphans.running:
        await asyncio.sleep(0)
    if policy == "drain":
        assert world.log == ["c0", "g0"]
        assert world["g0"].requests[0]["stream"] is True
        assert world["g0"].transports[0].aborted
        assert world.service.orphans.outcomes == {"drained": 1}
    else:
        assert world.log == ["c0"]
        assert world.service.orphans.outcomes == {"dropped": 1}


@pytest.mark.parametrize(
    ("limit", "code", "silent", "stream"),
    [
        ("timeout_context", "context_timeout", "c0", False),
        ("timeout_first_byte", "first_byte_timeout", "g0", False),
        ("timeout_first_byte", "first_byte_timeout", "g0", True),
    ],
)
async def test_deadlines(make: MakeWorld, limit: str, code: str, silent: str, stream: bool) -> None:
    world = make(**{limit: 0.02})
    world.script(c0=[reply(HAND_OFF)], g0=[nothing])
    world[silent].steps = [nothing]
    error = await world.ask(stream=stream)
    assert isinstance(error, LegTimeout)
    assert (error.status, error.code) == (504, code)
    assert error.source.value == ("ctx" if silent == "c0" else "gen")
    assert world[silent].transports[-1].aborted


async def test_silence_in_a_stream(make: MakeWorld) -> None:
    world = make(timeout_idle=0.02)
    world.script(c0=[reply(HAND_OFF)], g0=[STREAM_HEAD + FRAME])
    assert await world.ask(stream=True) is None
    assert b"idle_timeout" in world.client.body
    assert world.record.outcome == "error"


async def test_the_total(make: MakeWorld) -> None:
    world = make()
    world.script(c0=[nothing])
    error = await world.ask(total=0.02)
    assert isinstance(error, LegTimeout)
    assert error.code == "deadline_exceeded"


@pytest.mark.parametrize("silent", ["c0", "g0"])
@pytest.mark.parametrize("stream", [False, True])
async def test_cancelled(make: MakeWorld, silent: str, stream: bool) -> None:
    world = make()
    world.script(c0=[reply(HAND_OFF)], g0=[STREAM_HEAD + FRAME if stream else nothing])
    world[silent].steps = [nothing] if silent == "c0" else world["g0"].steps
    task = world.start(stream=stream)
    while silent not in world.log:
        await asyncio.sleep(0)
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle()
    assert world[silent].transports[-1].aborted
    if stream and silent == "g0":
        assert b"shutting_down" in world.client.body
