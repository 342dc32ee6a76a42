"""Answers of scripted workers that have to be rewritten: the context worker knows no `ctx_usage`."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scripted_workers import END, HAND_OFF, STREAM_HEAD, World, reply

from proxy.errors import BrokenAnswer, ConnectionBroken
from proxy.wire.chunks import chunk

GENERATED = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}
RIGHT = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
ASKED: Any = {"stream": True, "stream_options": {"include_usage": True}}
USAGE = b"data: " + json.dumps(GENERATED).encode() + b"\n\n"
TEXT = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM = STREAM_HEAD + chunk(TEXT) + chunk(USAGE) + chunk(DONE) + END


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(generation=2)
    yield made
    await made.close()


def usage_of(event: bytes) -> Any:
    return json.loads(event.removeprefix(b"data: "))["usage"]


async def test_a_whole_answer(world: World) -> None:
    world.script(c0=[reply(HAND_OFF)], g0=[reply(GENERATED)], g1=[reply(GENERATED)])
    assert await world.ask() is None
    assert json.loads(world.client.body)["usage"] == RIGHT


async def test_a_stream(world: World) -> None:
    world.script(c0=[reply(HAND_OFF)], g0=[STREAM], g1=[STREAM])
    assert await world.ask(**ASKED) is None
    text, usage, done, end = world.client.body.split(b"\n\n")
    assert (text + b"\n\n", done + b"\n\n", end) == (TEXT, DONE, b"")
    assert usage_of(usage) == RIGHT
    assert world.client.complete


async def test_a_stream_that_does_not_show_it_is_not_looked_at(world: World) -> None:
    half = STREAM_HEAD + chunk(TEXT[:20])

    def step(transport: Any) -> None:
        transport.receive(half)
        assert world.client.body == b""  # the relay has not begun

    world.script(c0=[reply(HAND_OFF)], g0=[step], g1=[step])
    task = world.start(stream=True)
    while not world.client.body:
        await asyncio.sleep(0)
    assert world.client.body == TEXT[:20]  # a part of an event
    transport = next(t for g in ("g0", "g1") for t in world[g].transports)
    transport.receive(chunk(TEXT[20:] + USAGE) + END)
    await task
    assert world.client.body == TEXT + USAGE


async def test_the_worker_that_answers_in_the_end(world: World) -> None:
    answers = [STREAM, reply({"error": "busy"}, 503)]

    def step(transport: Any) -> None:
        transport.receive(answers.pop())

    world.script(c0=[reply(HAND_OFF)], g0=[step], g1=[step])
    assert await world.ask(**ASKED) is None
    assert usage_of(world.client.body.split(b"\n\n")[1]) == RIGHT
    assert len(world.log) == 3


@pytest.mark.parametrize("body", [b"\x1f\x8b\x08 packed", b"[1]", b"{", USAGE])
async def test_a_body_that_is_no_json_object(world: World, body: bytes) -> None:
    answer = reply(body, 200, b"content-encoding: gzip")
    world.script(c0=[reply(HAND_OFF)], g0=[answer], g1=[answer])
    assert await world.ask() is None
    assert world.client.body == body


async def test_an_encoded_stream_passes(world: World) -> None:
    packed = STREAM.replace(b"\r\n\r\n", b"\r\ncontent-encoding: br\r\n\r\n", 1)
    world.script(c0=[reply(HAND_OFF)], g0=[packed], g1=[packed])
    assert await world.ask(**ASKED) is None
    assert world.client.body == TEXT + USAGE + DONE
    assert world.client.headers[b"content-encoding"] == b"br"


async def test_an_error_of_the_workers_own(world: World) -> None:
    answer = reply({"usage": {"completion_tokens": 1}}, 400)
    world.script(c0=[reply(HAND_OFF)], g0=[answer], g1=[answer])
    assert await world.ask() is None
    assert json.loads(world.client.body) == {"usage": {"completion_tokens": 1}}


async def test_a_worker_that_breaks_off_inside_an_event(world: World) -> None:
    def step(transport: Any) -> None:
        transport.receive(STREAM_HEAD + chunk(TEXT) + chunk(USAGE[:30]))
        asyncio.get_running_loop().call_soon(transport.lose)

    world.script(c0=[reply(HAND_OFF)], g0=[step], g1=[step])
    assert await world.ask(**ASKED) is None
    assert isinstance(world.record.error, ConnectionBroken)
    text, error, end = world.client.body.split(b"\n\n")
    assert (text + b"\n\n", end) == (TEXT, b"")
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "worker_disconnected"
    assert not world.client.cut


async def test_an_event_without_an_end_is_the_workers_fault(world: World) -> None:
    endless = STREAM_HEAD + chunk(TEXT) + chunk(b"x" * (16 << 20)) + chunk(b"x")
    world.script(c0=[reply(HAND_OFF)], g0=[endless], g1=[endless])
    assert await world.ask(**ASKED) is None
    assert isinstance(world.record.error, BrokenAnswer)
    assert b'"bad_worker_response"' in world.client.body.removeprefix(TEXT)
    assert all(transport.aborted for g in ("g0", "g1") for transport in world[g].transports)
