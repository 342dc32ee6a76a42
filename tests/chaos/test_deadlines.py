"""Deadlines: each phase has its own, and what is merely long is never cut."""

import asyncio
import time

import pytest
from chaos_proxy import ChaosProxy, until
from e2e_bodies import CHAT, chat, events, streamed_text

from proxy.config.settings import ProxySettings
from proxy.sim import expected_text

DEFAULTS = ProxySettings()
# Everything but what is slow on purpose must be done well within it, on a busy machine too.
LIMIT = 1.0


KINDS = ("own", "uvicorn")
STREAMS = (False, True)


def check_error(answer, source, code, *, limit=LIMIT):
    assert answer.status == 504
    assert answer.headers["x-disagg-proxy-error"] == f"{source};{code}"
    assert answer.json()["error"]["code"] == code
    assert limit - 0.05 <= answer.seconds < limit + 1.5


def check_event(answer, code):
    assert answer.status == 200
    *_, last = events(answer.text)
    assert last["error"]["code"] == code
    assert "[DONE]" not in answer.text


def run(chaos, faults, then, cluster=None, kinds=KINDS, streams=STREAMS, **overrides):
    """Let ``then(proxy, stream)`` ask while faults of each role's workers are on."""

    async def scenario(kind, stream):
        async with ChaosProxy(kind, {"context": 1, "generation": 1, **(cluster or {})}, **overrides) as proxy:
            for leg, fault in faults.items():
                proxy.add_fault(leg, **fault)
            await then(proxy, stream)
            await proxy.settled()

    chaos.each(scenario, kind=kinds, stream=streams)


@pytest.mark.parametrize(
    ("key", "leg", "source", "code"),
    [
        ("timeout_context", "context", "ctx", "context_timeout"),
        ("timeout_first_byte", "generation", "gen", "first_byte_timeout"),
        ("timeout_total", "context", "ctx", "deadline_exceeded"),
        ("timeout_total", "generation", "gen", "deadline_exceeded"),
    ],
)
def test_a_silent_worker(chaos, key, leg, source, code):
    async def then(proxy, stream):
        check_error(await proxy.ask(CHAT, chat(stream=stream)), source, code)
        (worker,) = proxy.workers(leg)
        await until(lambda: worker.engine.aborts == 1, "the abort")
        assert await proxy.outcomes() == {"error": 1}

    run(chaos, {leg: {"kind": "hang"}}, then, **{key: LIMIT})


def test_the_total_counts_both_legs(chaos):
    """Neither leg exceeds a deadline of its own."""

    async def then(proxy, stream):
        check_error(await proxy.ask(CHAT, chat(stream=stream)), "gen", "deadline_exceeded")

    slow = {"kind": "slow_first_byte", "seconds": LIMIT * 0.6}
    run(
        chaos,
        {"context": slow, "generation": slow},
        then,
        timeout_total=LIMIT,
        timeout_context=LIMIT,
        timeout_first_byte=LIMIT,
    )


@pytest.mark.parametrize(("leg", "source"), [("context", "ctx"), ("generation", "gen")])
@pytest.mark.parametrize("configured", [0, LIMIT * 10])
def test_a_client_sets_its_own(chaos, leg, source, configured):
    async def then(proxy, stream):
        answer = await proxy.ask(CHAT, chat(stream=stream), x_request_timeout_ms=str(int(LIMIT * 1000)))
        check_error(answer, source, "deadline_exceeded")

    run(chaos, {leg: {"kind": "hang"}}, then, timeout_total=configured)


def test_a_client_cannot_ask_for_more(chaos):
    async def then(proxy, stream):
        answer = await proxy.ask(CHAT, chat(stream=stream), x_request_timeout_ms="60000")
        check_error(answer, "ctx", "deadline_exceeded")

    run(chaos, {"context": {"kind": "hang"}}, then, timeout_total=LIMIT)


def test_a_deadline_that_is_none(chaos):
    async def then(proxy, stream):
        for value in ("0", "-5", "soon", "1.5", ""):
            answer = await proxy.ask(CHAT, chat(stream=stream), x_request_timeout_ms=value)
            assert answer.status == 400
        assert proxy.legs("context") == 0

    run(chaos, {}, then)


def test_a_running_stream_meets_the_total(chaos):
    async def then(proxy, stream):
        answer = await proxy.ask(CHAT, chat(stream=True, max_tokens=500, ignore_eos=True))
        check_event(answer, "deadline_exceeded")
        assert LIMIT - 0.05 <= answer.seconds < LIMIT + 1.5
        (worker,) = proxy.workers("generation")
        await until(lambda: worker.engine.aborts == 1, "the abort")

    run(chaos, {}, then, {"speed": {"decode_ms": 20.0}}, streams=(True,), timeout_total=LIMIT)


def test_a_gap(chaos):
    """The stream falls silent for longer than `timeout_idle`."""

    async def then(proxy, stream):
        answer = await proxy.ask(CHAT, chat(stream=True))
        check_event(answer, "idle_timeout")
        assert len(events(answer.text)) == 4
        (worker,) = proxy.workers("generation")
        await until(lambda: worker.engine.aborts == 1, "the abort")
        assert await proxy.outcomes() == {"error": 1}

    run(
        chaos, {"generation": {"kind": "stall", "after_events": 3}}, then, streams=(True,), timeout_idle=LIMIT
    )


# A second of the test stands for so many of real life.
SCALE = 600.0


def scaled(seconds):
    return seconds / SCALE


def test_ten_minutes_of_generation(chaos):
    """With every deadline at its default, on a clock that runs 600 times as fast."""

    async def then(proxy, stream):
        body = chat(stream=True, max_tokens=26, ignore_eos=True)
        began = time.monotonic()
        answer = await proxy.ask(CHAT, body)
        assert time.monotonic() - began >= scaled(600)
        assert answer.complete
        assert streamed_text(answer.text) == expected_text(body)

    assert DEFAULTS.timeout_total == 0
    run(
        chaos,
        {},
        then,
        {"speed": {"decode_ms": 42.0}},  # 25 steps: more than a second
        streams=(True,),
        timeout_context=scaled(DEFAULTS.timeout_context),
        timeout_first_byte=scaled(DEFAULTS.timeout_first_byte),
        timeout_idle=scaled(DEFAULTS.timeout_idle),
    )


@pytest.mark.parametrize(("limit", "status"), [(DEFAULTS.timeout_first_byte, 504), (0, 200)])
def test_ten_minutes_without_a_stream(chaos, limit, status):
    """The first byte is the last one too: for such answers `timeout_first_byte` has to allow for all of it."""

    async def then(proxy, stream):
        answer = await proxy.ask(CHAT, chat(max_tokens=26, ignore_eos=True))
        assert answer.status == status

    run(chaos, {}, then, {"speed": {"decode_ms": 42.0}}, streams=(False,), timeout_first_byte=scaled(limit))


def test_deadlines_that_are_off(chaos):
    """0 is for ever."""

    async def then(proxy, stream):
        pause = asyncio.create_task(proxy.ask(CHAT, chat(stream=stream)))
        await asyncio.sleep(1.0)
        assert not pause.done()
        proxy.clear_faults()
        pause.cancel()
        await asyncio.gather(pause, return_exceptions=True)

    off = dict.fromkeys(("timeout_context", "timeout_first_byte", "timeout_idle", "timeout_total"), 0)
    run(chaos, {"generation": {"kind": "hang"}}, then, **off)
