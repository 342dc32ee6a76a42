"""Conversations and held requests over the processes of real fleets, in front of the same simulated workers.

`pytest --log-cli-level=info` shows the figures.
"""

import asyncio
import contextlib
import logging
import random
import signal
from collections import Counter
from collections.abc import Callable

import pytest
from fleet_load import ask, held_open
from fleet_rows import leftovers
from fleet_stack import FleetStack
from program import eventually

from proxy.placement.bound import load_limit
from proxy.sim import Speed

_logger = logging.getLogger(__name__)

StartFleet = Callable[..., FleetStack]
WORKERS = {"context": 4, "generation": 4, "record": 1 << 15}
# Conversations that are asked something at the same moment, over both fleets.
AT_ONCE = 16


def conversation_body(conversation: int, turn: int) -> dict[str, object]:
    """A turn with all turns before it, as clients send it: nothing but the messages names the conversation."""
    messages = [
        {"role": "system", "content": "be terse"},
        {"role": "user", "content": f"conversation {conversation}: {'words ' * 20}"},
    ]
    for past in range(turn):
        messages += [
            {"role": "assistant", "content": f"answer {past}"},
            {"role": "user", "content": f"question {past}"},
        ]
    return {"model": "sim", "messages": messages, "max_tokens": 2}


def places(fleet: FleetStack) -> dict[int, list[str]]:
    """The context worker of each turn of each conversation, turns in their order."""
    found: dict[int, dict[int, str]] = {}
    for worker in fleet.cluster.context_workers:
        for request in worker.requests:
            if request.leg == "context":
                messages = request.json()["messages"]
                conversation = int(messages[1]["content"].split()[1].rstrip(":"))
                found.setdefault(conversation, {})[len(messages) // 2] = worker.address
    return {key: [turns[turn] for turn in sorted(turns)] for key, turns in found.items()}


async def talk(fleets: list[FleetStack], conversations: range, turns: int, chance: random.Random) -> None:
    """All conversations, some at once; each turn on a connection of its own to one of the fleets."""
    waiting = list(conversations)

    async def some() -> None:
        while waiting:
            conversation = waiting.pop()
            for turn in range(turns):
                fleet = chance.choice(fleets)
                body = conversation_body(conversation, turn)
                assert await ask(fleet.port, "/v1/chat/completions", body) == 200

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


@pytest.mark.parametrize(("conversations", "turns"), [(60, 5), pytest.param(200, 10, marks=pytest.mark.long)])
async def test_conversations_stay_whichever_process_of_whichever_fleet_gets_them(
    start_fleet: StartFleet, conversations: int, turns: int
) -> None:
    options = {"listed": 4, "router": "conversation", "slow_start_seconds": 0}
    speed = Speed(prefill_tokens_per_second=20_000)
    one = start_fleet(3, workers={**WORKERS, "context": 5, "speed": speed}, top={"node_id": 1}, **options)
    two = start_fleet(2, cluster=one.cluster, top={"node_id": 2}, **options)
    for fleet in (one, two):
        await asyncio.to_thread(fleet.wait_ready)
    chance = random.Random(conversations)
    # How evenly so few keys fall on workers with ports of chance, and so how often their bound is met, is chance too.
    stayed = 0.0
    for attempt in range(3):
        if stayed >= 0.97:
            break
        for worker in one.cluster.workers:
            worker.clear_records()
        keys = range(attempt * conversations, (attempt + 1) * conversations)
        await talk([one, two], keys, turns, chance)
        before = places(one)
        assert set(before) == set(keys)
        assert all(len(each) == turns for each in before.values())
        stayed = sum(place == each[0] for each in before.values() for place in each) / (conversations * turns)
        _logger.info("stayed: %.4f", stayed)
    assert stayed >= 0.97
    assert len({each[0] for each in before.values()}) == 4
    # All processes have taken part, and no id was used twice.
    assert set(one.requests_by_process()) == {0, 1, 2}
    ids = [
        request.json()["disaggregated_params"]["disagg_request_id"]
        for worker in one.cluster.context_workers
        for request in worker.requests
    ]
    assert len(set(ids)) == len(ids) >= conversations * turns

    # One more worker takes its share of the keys, and nothing else moves.
    for fleet in (one, two):
        fleet.write_config(fleet.cluster.context_urls)
        fleet.program.process.send_signal(signal.SIGHUP)
        await asyncio.to_thread(fleet.program.wait_for, "was read again: 9 workers")
    added = one.cluster.context_workers[4]
    await asyncio.to_thread(
        eventually,
        lambda: all(
            fleet.metrics().get(f'disagg_proxy_worker_ready{{role="context",worker="{added.address}"}}') == 1
            for fleet in (one, two)
        ),
        what="the new worker",
    )
    for worker in one.cluster.workers:
        worker.clear_records()
    await talk([one, two], keys, 1, chance)
    after = places(one)
    moved = [key for key in before if after[key][0] != Counter(before[key]).most_common(1)[0][0]]
    elsewhere = [key for key in moved if after[key][0] != added.address]
    share = len(moved) / conversations
    _logger.info("moved: %.3f, %d of %d not to the new worker", share, len(elsewhere), len(moved))
    # Five standard deviations of so many keys around a fifth.
    assert abs(share - 0.2) <= 5 * (0.2 * 0.8 / conversations) ** 0.5
    assert len(elsewhere) <= 0.03 * conversations


@pytest.mark.parametrize(("processes", "leg"), [(1, "generation"), (3, "context"), (3, "generation")])
async def test_held_requests_are_even(start_fleet: StartFleet, processes: int, leg: str) -> None:
    fleet = start_fleet(processes, listed=4, workers=WORKERS, router="load_balancing")
    await asyncio.to_thread(fleet.wait_ready)
    held = [worker for worker in fleet.cluster.workers if worker.role == leg]
    for worker in held:
        worker.add_fault(kind="hang", leg=leg)
    async with held_open(fleet.port, 64):
        await asyncio.to_thread(
            eventually, lambda: sum(worker.legs[leg] for worker in held) == 64, what="all of them"
        )
        counts = [worker.legs[leg] for worker in held]
        for worker in held:
            worker.clear_faults()
    _logger.info("%d processes, %s: %s", processes, leg, counts)
    most = 1 if processes == 1 else 3
    assert all(abs(count - 16) <= most for count in counts)
    if processes > 1:
        await asyncio.to_thread(eventually, lambda: not leftovers(fleet), what="zero everywhere")


@pytest.mark.parametrize("fleets", [1, 2])
async def test_a_hot_conversation_stays_within_the_bound(start_fleet: StartFleet, fleets: int) -> None:
    requests = 64
    first = start_fleet(3, listed=4, workers=WORKERS, router="conversation")
    stacks = [first]
    if fleets == 2:
        stacks.append(start_fleet(3, listed=4, cluster=first.cluster, router="conversation"))
    for stack in stacks:
        await asyncio.to_thread(stack.wait_ready)
    workers = first.cluster.context_workers
    for worker in workers:
        worker.add_fault(kind="hang", leg="context")
    body = {"model": "sim", "prompt": "hot", "max_tokens": 2, "session_id": "hot"}
    async with contextlib.AsyncExitStack() as stack:
        for each in stacks:
            await stack.enter_async_context(held_open(each.port, requests, body))
        await asyncio.to_thread(
            eventually,
            lambda: sum(worker.legs["context"] for worker in workers) == requests * fleets,
            what="all of them",
        )
        counts = sorted(worker.legs["context"] for worker in workers)
    _logger.info("%d fleets: %s, bound of each %d", fleets, counts, load_limit(requests - 1, 4))
    # Processes that choose at the same moment do not see each other: one leg more for each.
    assert counts[-1] <= fleets * (load_limit(requests - 1, 4) + 2)
    # The conversation's own worker has as much as it may.
    assert counts[-1] >= requests * fleets / 4
    for each in stacks:
        await asyncio.to_thread(eventually, lambda: not leftovers(each), what="zero everywhere")  # noqa: B023
