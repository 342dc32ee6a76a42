"""A client that leaves, at every moment of its request: the worker hears of it at once and nothing is left."""

import asyncio
import time

import pytest
from chaos_proxy import ChaosProxy, until
from e2e_bodies import CHAT, COMPLETIONS, chat, completion

from proxy.lifecycle import orphans

TRIES = 3
# What is promised, and what a busy machine may make of it now and then.
BEST_SECONDS = 0.05
WORST_SECONDS = 1.0

BODIES = {"chat": (CHAT, chat), "completions": (COMPLETIONS, completion)}
SLOW = {"decode_ms": 20.0}


KINDS = ("own", "uvicorn")
STREAMS = (False, True)
WAYS = ("close", "reset")


async def leave(client, how):
    if how == "reset":
        client.reset()
    else:
        client.writer.close()  # FIN, nothing more


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leg", ["context", "generation"])
def test_while_a_worker_is_silent(chaos, kind, leg):
    """In the context leg, and before the first byte of the generation leg."""

    async def scenario(stream, how, route):
        async with ChaosProxy(kind, {"context": 1, "generation": 1}) as proxy:
            proxy.add_fault(leg, kind="hang")
            (worker,) = proxy.workers(leg)
            await measured(proxy, worker, route, how, stream=stream, ready=lambda n: proxy.legs(leg) == n)
            assert proxy.held == (TRIES if leg == "generation" else 0)
            assert proxy.legs("generation") == (TRIES if leg == "generation" else 0)
            # What the worker has not pulled by then is held until its time-out, and counted.
            assert proxy.service.orphans.outcomes == ({"lost": TRIES} if leg == "generation" else {})

    chaos.each(scenario, stream=STREAMS, how=WAYS, route=BODIES)


@pytest.mark.parametrize("kind", KINDS)
def test_while_the_answer_is_made(chaos, kind):
    """In the middle of a stream, and of an answer in one piece."""

    async def scenario(stream, how, route):
        async with ChaosProxy(kind, {"context": 1, "generation": 1, "speed": SLOW}) as proxy:
            (worker,) = proxy.workers("generation")
            await measured(
                proxy,
                worker,
                route,
                how,
                stream=stream,
                ready=lambda n: proxy.cluster.kv.counts().taken == n,
                max_tokens=500,
                ignore_eos=True,
            )
            assert proxy.held == 0

    chaos.each(scenario, stream=STREAMS, how=WAYS, route=BODIES)


async def measured(proxy, worker, route, how, *, stream, ready, **fields):
    """Let clients leave one after the other; the worker must see each of them go in time."""
    path, make = BODIES[route]
    seconds = []
    for number in range(1, TRIES + 1):
        client = await proxy.connect()
        client.send(path, make(stream=stream, **fields))
        await until(lambda: ready(number), "the leg")  # noqa: B023 - awaited at once
        if stream and fields:
            await client.reader.readuntil(b"data: ")
        aborts = worker.engine.aborts
        began = time.perf_counter()
        await leave(client, how)
        while worker.engine.aborts == aborts:
            assert time.perf_counter() - began < WORST_SECONDS, "the worker was not told"
            await asyncio.sleep(0.001)
        seconds.append(time.perf_counter() - began)
        await proxy.settled()
    assert min(seconds) < BEST_SECONDS
    assert await proxy.outcomes() == {"client_closed": TRIES}


def test_while_it_waits_for_a_connection(chaos):
    """Nothing has been sent for it, and nothing is sent later."""

    async def scenario(kind, stream):
        async with ChaosProxy(kind, {"context": 1, "generation": 1}, max_connections_per_worker=1) as proxy:
            (worker,) = proxy.workers("context")
            worker.add_fault(kind="hang", count=1)
            first, second = await proxy.connect(), await proxy.connect()
            first.send(CHAT, chat())
            await until(lambda: proxy.legs("context") == 1, "the first leg")
            second.send(CHAT, chat(stream=stream))
            await until(lambda: proxy.load == 2, "the second leg's place")
            second.reset()
            await until(lambda: proxy.load == 1, "the end of the second request", 1.0)
            first.reset()
            await proxy.settled()
            assert proxy.legs("context") == 1
            assert (await proxy.ask(CHAT, chat(stream=stream))).status == 200
            await proxy.settled()
            assert proxy.legs("context") == 2
            assert await proxy.outcomes() == {"client_closed": 2, "ok": 1}

    chaos.each(scenario, kind=KINDS, stream=STREAMS)


def test_in_the_queue(chaos):
    """It waits for its admission: no worker hears of it, and its place in the queue is free."""

    async def scenario(kind, stream, how):
        async with ChaosProxy(kind, max_inflight=1) as proxy:
            proxy.add_fault("context", kind="hang")
            admission = proxy.service.admission
            running, waiting = await proxy.connect(), await proxy.connect()
            running.send(CHAT, chat())
            await until(lambda: proxy.legs("context") == 1, "the first leg")
            waiting.send(CHAT, chat(stream=stream))
            await until(lambda: admission.queued == 1, "the queue")
            await leave(waiting, how)
            await until(lambda: admission.queued == 0, "the end of the waiting", WORST_SECONDS)
            running.reset()
            await proxy.settled()
            assert (admission.in_flight, admission.queued_bytes) == (0, 0)
            proxy.clear_faults()
            assert (await proxy.ask(CHAT, chat(stream=stream))).status == 200
            await proxy.settled()
            assert proxy.legs("context") == 2
            assert await proxy.outcomes() == {"client_closed": 2, "ok": 1}

    chaos.each(scenario, kind=KINDS, stream=STREAMS, how=WAYS)


async def leave_between_the_legs(proxy, clients, *, stream):
    """Prefilled, and then the only connection to the generation worker is taken: the clients leave meanwhile."""
    blocker = await proxy.connect()
    blocker.send(CHAT, chat(stream=True, max_tokens=500, ignore_eos=True))
    await until(lambda: proxy.cluster.kv.counts().taken == 1, "the first generation leg")
    waiting = [await proxy.connect() for _ in range(clients)]
    for client in waiting:
        client.send(CHAT, chat(stream=stream, max_tokens=3))
    await until(lambda: proxy.held == clients, "the hand-offs")
    await until(lambda: proxy.load == 1 + clients, "the places of the generation legs")
    for client in waiting:
        client.reset()
    await until(lambda: proxy.client_connections == 1, "the end of the connections")
    return blocker


class TestBetweenTheLegs:
    options = {"context": 1, "generation": 1, "speed": SLOW}  # noqa: RUF012

    def run(self, chaos, clients, then, kinds=KINDS, streams=STREAMS, **overrides):
        async def scenario(kind, stream):
            async with ChaosProxy(kind, self.options, max_connections_per_worker=1, **overrides) as proxy:
                blocker = await leave_between_the_legs(proxy, clients, stream=stream)
                outcomes = proxy.service.orphans.outcomes
                await then(proxy, blocker, outcomes)
                await blocker.close()
                await proxy.settled()
                assert await proxy.outcomes() == {"client_closed": clients + 1}

        chaos.each(scenario, kind=kinds, stream=streams)

    def test_drain(self, chaos):
        """The generation leg is sent for nobody, so that the KV is taken, and closed at its first byte."""

        async def then(proxy, blocker, outcomes):
            assert proxy.held == 1
            blocker.reset()
            await until(lambda: outcomes["drained"] == 1, "the drain")
            (worker,) = proxy.workers("generation")
            drain = worker.requests[-1].json()
            assert drain["stream"] is True
            assert "stream_options" not in drain
            await proxy.settled()
            assert proxy.held == 0
            assert worker.engine.aborts == 2

        self.run(chaos, 1, then)

    def test_drop(self, chaos):
        """The hand-off is left to expire, and counted."""

        async def then(proxy, blocker, outcomes):
            assert outcomes == {"dropped": 1}
            blocker.reset()
            await proxy.settled()
            assert proxy.legs("generation") == 1
            assert proxy.held == 1
            await until(lambda: proxy.held == 0, "the expiry")

        self.run(chaos, 1, then, on_disconnect_after_prefill="drop")

    def test_drains_are_bounded_in_number(self, chaos):
        """The surplus is left to expire, and counted."""

        async def then(proxy, blocker, outcomes):
            await until(lambda: proxy.service.orphans.running == orphans.MOST_DRAINS, "the drains")
            assert outcomes == {"refused": 6}
            blocker.reset()
            await until(lambda: outcomes["drained"] == orphans.MOST_DRAINS, "the drains' end")
            await proxy.settled()
            assert proxy.held == 6

        self.run(chaos, orphans.MOST_DRAINS + 6, then, kinds=("own",), streams=(True,))

    @pytest.mark.parametrize("first_byte", [0.2, 0.0])
    def test_drains_are_bounded_in_time(self, chaos, monkeypatch, first_byte):
        monkeypatch.setattr(orphans, "MOST_SECONDS", 30.0 if first_byte else 0.2)

        async def then(proxy, blocker, outcomes):
            await until(lambda: outcomes == {"failed": 1}, "the end of the drain", 2.0)
            assert proxy.held == 1
            assert proxy.legs("generation") == 1

        self.run(chaos, 1, then, timeout_first_byte=first_byte)

    def test_a_drain_whose_worker_fails(self, chaos):
        async def then(proxy, blocker, outcomes):
            proxy.add_fault("generation", kind="reset")
            blocker.reset()
            await until(lambda: outcomes["failed"] == 1, "the end of the drain")
            await proxy.settled()
            assert proxy.held == 1

        self.run(chaos, 1, then)


def test_in_the_middle_of_its_request(chaos):
    """Half a body: no worker ever hears of it."""

    async def scenario(kind, how):
        async with ChaosProxy(kind) as proxy:
            client = await proxy.connect()
            client.writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"
            )
            await until(lambda: proxy.client_connections == 1, "the connection")
            await asyncio.sleep(0.02)
            await leave(client, how)
            await proxy.settled()
            assert proxy.legs("context") == 0

    chaos.each(scenario, kind=KINDS, how=WAYS)


def test_with_a_second_request_behind(chaos):
    """Pipelined: the loss of the connection reaches the running request, and the waiting one never runs."""

    async def scenario(stream):
        async with ChaosProxy("own", {"context": 1, "generation": 1}) as proxy:
            (worker,) = proxy.workers("generation")
            worker.add_fault(kind="stall", after_events=1)
            client = await proxy.connect()
            client.send(CHAT, chat(stream=stream))
            client.writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
            )
            await until(lambda: proxy.legs("generation") == 1, "the leg")
            await asyncio.sleep(0.02)
            client.reset()
            await until(lambda: worker.engine.aborts == 1, "the abort", WORST_SECONDS)
            await proxy.settled()
            assert await proxy.outcomes() == {"client_closed": 1}

    chaos.each(scenario, stream=STREAMS)
