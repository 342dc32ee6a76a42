"""The order of the phases, and what becomes of a request when one of them goes wrong."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scripted_workers import (
    EVENT,
    HAND_OFF,
    REQUEST_ID,
    STREAM,
    World,
    finished,
    lose,
    reply,
)

from proxy.errors import Aborted, BrokenAnswer, ConnectFailed, ConnectionBroken, NotReady
from proxy.workers.worker import Role

MakeWorld = Callable[..., World]
GENERATED = {
    "id": "chatcmpl-1",
    "choices": [{"index": 0, "message": {"content": "Blue"}, "finish_reason": "stop"}],
}


async def test_both_legs(make: MakeWorld) -> None:
    world = make()
    world.script(c0=[reply(HAND_OFF)], g0=[reply(GENERATED)])
    assert await world.ask() is None
    assert world.log == ["c0", "g0"]
    client, record = world.client, world.record
    assert (client.status, json.loads(client.body)) == (200, GENERATED)
    assert client.headers.keys() == {
        *(b"content-type", b"x-request-id", b"x-disagg-proxy-overhead-us", b"server-timing")
    }
    prefill, generate = world["c0"].requests[0], world["g0"].requests[0]
    assert prefill["stream"] is False
    assert prefill["disaggregated_params"]["request_type"] == "context_only"
    assert generate["disaggregated_params"]["request_type"] == "generation_only"
    assert generate["disaggregated_params"]["disagg_request_id"] == REQUEST_ID
    assert b"x-request-id: req-1" in world["g0"].heads[0]
    assert (record.outcome, record.answered_by, record.retries) == ("ok", "gen", 0)
    assert record.context_sent <= record.context_done <= record.generation_sent <= record.generation_head


async def test_a_stream(make: MakeWorld) -> None:
    world = make()
    world.script(c0=[reply(HAND_OFF)], g0=[STREAM])
    assert await world.ask(stream=True) is None
    assert (world.client.status, world.client.body, world.client.complete) == (200, EVENT, True)
    assert world["g0"].requests[0]["stream"] is True
    assert world.record.response_size == len(EVENT)
    assert world.record.outcome == "ok"


async def test_the_context_worker_finishes_by_itself(make: MakeWorld) -> None:
    world = make()
    world.script(c0=[finished("Blue")])
    assert await world.ask() is None
    assert world.log == ["c0"]
    assert json.loads(world.client.body)["choices"][0]["message"]["content"] == "Blue"
    assert world.record.answered_by == "ctx"


async def test_it_finishes_a_stream_too(make: MakeWorld) -> None:
    world = make()
    world.script(c0=[finished("Blue")])
    assert await world.ask(stream=True) is None
    assert world.client.headers[b"content-type"].startswith(b"text/event-stream")
    assert world.client.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 501])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_about_the_request_is_the_answer(make: MakeWorld, status: int, stream: bool) -> None:
    for who in ("c0", "g0"):
        world = make(2, 2)
        told = reply(b"told you", status, b"x-trtllm-a: 1", b"set-cookie: no")
        world.script(c0=[reply(HAND_OFF)], c1=[reply(HAND_OFF)], g0=[reply(GENERATED)], g1=[reply(GENERATED)])
        world[who].steps = world[who[0] + "1"].steps = [told]
        assert await world.ask(stream=stream) is None
        assert len(world.log) == (1 if who == "c0" else 2)
        assert (world.client.status, world.client.body) == (status, b"told you")
        assert world.client.headers[b"x-trtllm-a"] == b"1"
        assert b"set-cookie" not in world.client.headers
        assert world.record.outcome == ("error" if status >= 500 else "rejected")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_an_answer_about_the_worker_sends_the_context_leg_to_another(
    make: MakeWorld, status: int
) -> None:
    world = make(2, 1)
    world.script(c0=[reply(b"sick", status)], c1=[reply(HAND_OFF)], g0=[reply(GENERATED)])
    assert await world.ask() is None
    assert world.log == ["c0", "c1", "g0"]
    assert world.client.status == 200
    first, second = world["c0"].requests[0], world["c1"].requests[0]
    ids = [each["disaggregated_params"]["disagg_request_id"] for each in (first, second)]
    assert ids[0] != ids[1]  # workers refuse an id that they have seen
    assert world.record.retries == 1


async def test_the_last_answer_is_told_when_the_retries_are_used_up(make: MakeWorld) -> None:
    world = make(1, 1, max_retries=0)
    world.script(c0=[reply(b"sick", 500)])
    assert await world.ask() is None
    assert (world.client.status, world.client.body) == (500, b"sick")
    assert world.log == ["c0"]


async def test_a_context_connection_that_breaks(make: MakeWorld) -> None:
    world = make(2, 1)
    world.script(c0=[lose], c1=[reply(HAND_OFF)], g0=[reply(GENERATED)])
    assert await world.ask() is None
    assert world.log == ["c0", "c1", "g0"]
    world = make(1, 1, max_retries=0)
    world.script(c0=[lose])
    error = await world.ask()
    assert isinstance(error, ConnectionBroken)
    assert (error.status, error.source.value) == (502, "ctx")


async def test_a_context_worker_that_cannot_be_reached(make: MakeWorld) -> None:
    world = make(2, 1)
    world["c0"].refuses = [ConnectionRefusedError()]
    world.script(c1=[reply(HAND_OFF)], g0=[reply(GENERATED)])
    assert await world.ask() is None
    assert world.log == ["c0 refuses", "c1", "g0"]
    world = make(1, 1, max_retries=1)
    world["c0"].refuses = [ConnectionRefusedError(), ConnectionRefusedError()]
    error = await world.ask()
    assert isinstance(error, ConnectFailed)
    assert error.source.value == "ctx"


async def reuse(world: World) -> None:
    """Leave one idle connection to each worker."""
    world.script(c0=[reply(HAND_OFF)], g0=[reply(GENERATED)])
    assert await world.ask() is None
    world.client.status = 0
    world.log.clear()
    world.record.retries = 0


async def test_an_idle_connection_that_the_worker_closed_as_we_wrote(make: MakeWorld) -> None:
    world = make(max_retries=0)
    await reuse(world)
    world.script(c0=[lose, reply(HAND_OFF)], g0=[lose, reply(GENERATED)])
    assert await world.ask() is None
    assert world.log == ["c0", "c0", "g0", "g0"]
    context = [each["disaggregated_params"]["disagg_request_id"] for each in world["c0"].requests[-2:]]
    generation = [each["disaggregated_params"]["disagg_request_id"] for each in world["g0"].requests[-2:]]
    assert context[0] != context[1]
    assert generation == [REQUEST_ID] * 2
    assert world.record.retries == 2


@pytest.mark.parametrize("who", ["c0", "g0"])
async def test_it_is_tried_once(make: MakeWorld, who: str) -> None:
    world = make(max_retries=0)
    await reuse(world)
    world[who].steps = [lose]
    error = await world.ask()
    assert isinstance(error, ConnectionBroken)
    assert world.log.count(who) == 2


@pytest.mark.parametrize("budget", [1.0, 0.0])
@pytest.mark.parametrize("dead", [True, False])
async def test_a_worker_that_died_with_the_hand_off(make: MakeWorld, budget: float, dead: bool) -> None:
    """Whoever gets the leg next has no KV for it. That is no fault of the client's: prefill again, or a 502."""
    world = make(1, 2, retry_budget=budget)
    await reuse(world)
    pool = world.service.registry.pool(Role.GENERATION, "m")
    pool.policy.choose = lambda candidates, placement: 0  # type: ignore[method-assign]
    no_kv = reply({"error": {"message": "no KV cache"}}, 400)
    if dead:
        world["g0"].refuses = [ConnectionRefusedError()]
        world.service.retry_budget.take = iter([True, budget > 0]).__next__  # type: ignore[method-assign]
        world.script(g0=[lose], g1=[no_kv, reply(GENERATED)])
    else:
        world.script(g0=[lose, no_kv, reply(GENERATED)])
    error = await world.ask()
    assert world.log[: 4 if dead else 3] == ["c0", "g0", *(["g0 refuses", "g1"] if dead else ["g0"])]
    if budget:
        assert error is None
        assert world.client.status == 200
        assert world.log[-2:] == ["c0", "g1" if dead else "g0"]  # the one that said 400 is not to blame
    else:
        assert isinstance(error, ConnectionBroken)
        assert (error.status, error.source.value) == (502, "gen")
        assert world.client.status == 0


@pytest.mark.parametrize("budget", [1.0, 0.0])
@pytest.mark.parametrize("noticed", ["by its connection", "by probes"])
async def test_a_context_worker_that_died_with_the_kv(make: MakeWorld, budget: float, noticed: str) -> None:
    """The generation worker's 400 is then no fault of the client's."""

    def dies(transport: Any) -> None:
        if noticed == "by probes":
            for _ in range(3):
                world["c0"].instance.health.probe_failed(timed_out=False)
        else:
            world["c0"].transports[-1].receive_eof()
        transport.receive(reply({"error": {"message": "Generation failed"}}, 400))

    world = make(2, 1, retry_budget=budget)
    world.script(c0=[reply(HAND_OFF)], c1=[reply(HAND_OFF)], g0=[dies, reply(GENERATED)])
    world.service.registry.pool(Role.CONTEXT, "m").policy.choose = lambda *_: 0  # type: ignore[method-assign]
    error = await world.ask()
    if budget:
        assert error is None
        assert world.client.status == 200
        assert world.log == ["c0", "g0", "c1" if noticed == "by probes" else "c0", "g0"]
    else:
        assert isinstance(error, ConnectionBroken)
        assert (error.status, error.source.value) == (502, "ctx")
        assert world.log == ["c0", "g0"]


async def test_a_refusal_by_the_generation_worker_is_passed_on(make: MakeWorld) -> None:
    world = make(1, 1)
    world.script(c0=[reply(HAND_OFF)], g0=[reply({"error": {"message": "too long"}}, 400)])
    assert await world.ask() is None
    assert world.client.status == 400
    assert world.log == ["c0", "g0"]


async def test_an_abort_in_the_moment_in_which_the_context_worker_answers(make: MakeWorld) -> None:
    """The leg is over, and the request does not know it yet."""

    def answers(transport: Any) -> None:
        transport.receive(reply(HAND_OFF))
        assert world.service.admission.abort_running(lambda: Aborted("by an operator")) == 1

    world = make(1, 1)
    world.script(c0=[answers], g0=[reply(GENERATED)])
    assert isinstance(await world.ask(), Aborted)
    # Nobody is answered; the generation leg is the drain's.
    assert world.client.status == 0


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_generation_worker_that_refuses(make: MakeWorld, status: int, stream: bool) -> None:
    world = make(1, 2)
    world.script(
        c0=[reply(HAND_OFF)], g0=[reply(b"busy", status)], g1=[STREAM if stream else reply(GENERATED)]
    )
    assert await world.ask(stream=stream) is None
    assert world.log == ["c0", "g0", "g1"]
    assert world["g1"].requests[0]["disaggregated_params"]["disagg_request_id"] == REQUEST_ID
    assert world.client.status == 200


async def test_a_generation_worker_that_cannot_be_reached(make: MakeWorld) -> None:
    world = make(1, 2)
    world["g0"].refuses = [ConnectionRefusedError()]
    world.script(c0=[reply(HAND_OFF)], g1=[reply(GENERATED)])
    assert await world.ask() is None
    assert world.log == ["c0", "g0 refuses", "g1"]


async def test_the_second_pass_avoids_the_worker_that_failed(make: MakeWorld) -> None:
    """Whoever fails fast has the least load: a policy alone would choose it again."""
    world = make(1, 3)
    world.script(c0=[reply(HAND_OFF)], g0=[reply({}, 500)], g1=[reply(GENERATED)], g2=[reply(GENERATED)])
    pool = world.service.registry.pool(Role.GENERATION, "m")
    pool.policy.choose = lambda candidates, placement: 0  # type: ignore[method-assign]
    assert await world.ask() is None
    assert world.log == ["c0", "g0", "c0", "g1"]
    assert world.client.status == 200


@pytest.mark.parametrize("step", [lose, reply(b"sick", 500), reply(b"null"), b"garbage\r\n\r\n"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_lost_hand_off_is_made_again(make: MakeWorld, step: Any, stream: bool) -> None:
    """A hand-off is taken once: another generation worker cannot have it, but prefill can be repeated."""
    world = make(1, 2)
    good = STREAM if stream else reply(GENERATED)
    world.script(c0=[reply(HAND_OFF)], g0=[step], g1=[good])
    assert await world.ask(stream=stream) is None
    assert world.log[:3] == ["c0", "g0", "c0"]
    assert world.client.status == 200
    assert world.record.outcome == "ok"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (reply(b"not JSON"), BrokenAnswer),
        (reply({"choices": []}), BrokenAnswer),
        (
            reply({**HAND_OFF, "choices": [{**HAND_OFF["choices"][0], "disaggregated_params": None}]}),
            BrokenAnswer,
        ),  # type: ignore[index]
        (b"garbage\r\n\r\n", BrokenAnswer),
        (reply(HAND_OFF)[:-10], ConnectionBroken),
    ],
)
async def test_a_context_answer_that_is_none(make: MakeWorld, answer: bytes, kind: type[Exception]) -> None:
    def step(transport: Any) -> None:
        transport.receive(answer)
        transport.lose()

    world = make(max_retries=0)
    world.script(c0=[step])
    error = await world.ask()
    assert isinstance(error, kind)
    assert (error.status, error.source.value) == (502, "ctx")
    assert world.log == ["c0"]
    assert world.client.status == 0


async def test_there_is_no_worker(make: MakeWorld) -> None:
    world = make(0, 1)
    error = await world.ask()
    assert isinstance(error, NotReady)
    assert error.status == 503


async def test_many_at_once_leave_nothing_behind(make: MakeWorld) -> None:
    world = make(2, 2)
    world.script(
        **{name: [reply(HAND_OFF)] for name in ("c0", "c1")}, **{name: [STREAM] for name in ("g0", "g1")}
    )

    async def one() -> None:
        single = World.__new__(World)
        single.__dict__ = dict(world.__dict__)
        single.client = type(world.client)()
        assert await World.ask(single, stream=True) is None
        assert single.client.body == EVENT

    work: list[Awaitable[None]] = [one() for _ in range(100)]
    await asyncio.gather(*work)
    assert len(world.log) == 200
