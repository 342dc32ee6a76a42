"""Ways to send load: closed loop, open loop, pairs with and without the proxy, many open streams."""

import asyncio
from collections import deque
from time import perf_counter

from bench.cases import Case
from bench.load.answer_check import AnswerCheck
from bench.load.connection import ClientConnection, connect, exchange
from bench.load.tally import Tally, quantile


class Target:
    """The proxy under test and the requests for it; keeps its connections between phases."""

    def __init__(self, case: Case, port: int, request: bytes) -> None:
        self.case = case
        self.port = port
        self.request = request
        self.check = AnswerCheck(case)
        self._idle: list[ClientConnection] = []

    async def take(self, count: int) -> list[ClientConnection]:
        """`count` connected clients, used ones first."""
        alive = [connection for connection in self._idle if connection.transport is not None]
        taken, self._idle = alive[:count], alive[count:]
        while len(taken) < count:
            taken.append(await connect(self.port, self.check))
        return taken

    def give_back(self, connections: list[ClientConnection]) -> None:
        self._idle = connections + self._idle


async def wait_ready(target: Target, timeout: float) -> dict[str, object]:
    """Repeat one request until its answer is right; reports the last problem when it never is.

    A stream that never ends counts as right at its first event.
    """
    started = perf_counter()
    problem: str | None = "not tried"
    while perf_counter() - started < timeout:
        try:
            connection = await connect(target.port, target.check)
            if target.case.streams:
                await asyncio.wait_for(_open_stream(connection, target.request), 10)
                problem = None
            else:
                problem = await asyncio.wait_for(exchange(connection, target.request), 10)
            if connection.transport is not None:
                connection.transport.abort()
        except (OSError, TimeoutError, RuntimeError) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is None:
            break
        await asyncio.sleep(0.1)
    return {"ready": problem is None, "problem": problem, "seconds": perf_counter() - started}


async def closed_loop(target: Target, connections: int, seconds: float) -> dict[str, object]:
    """Each client sends its next request when the answer is complete; ends when the last one is.

    All requests that were started are finished and counted, so CPU time of the phase divided by requests
    has no edge effect. Clients of paced streams start spread over the length of a stream.
    """
    tally = Tally()
    clients = await target.take(connections)
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    started = perf_counter()
    deadline = started + seconds
    running = len(clients)

    def on_done(connection: ClientConnection, problem: str | None) -> None:
        nonlocal running
        if problem is None:
            tally.note(
                connection.done - connection.sent, connection.first - connection.sent, connection.reads
            )
        else:
            tally.note_error(problem)
        if perf_counter() < deadline and connection.transport is not None and tally.errors < 50:
            connection.send(target.request)
            return
        running -= 1
        if not running:
            over.set_result(None)

    length = target.case.chunks * target.case.interval_ms / 1000
    for number, client in enumerate(clients):
        client.on_done = on_done
        if length:
            loop.call_later(number * length / len(clients), client.send, target.request)
        else:
            client.send(target.request)
    await over
    target.give_back(clients)
    return tally.report(perf_counter() - started)


async def open_loop(target: Target, rate: float, seconds: float, connections: int) -> dict[str, object]:
    """Requests at fixed times whatever the proxy does; latency counts from the time it was due.

    At most `connections` are under way; later ones wait, and their wait counts.
    """
    tally = Tally()
    idle = deque(await target.take(connections))
    everyone = list(idle)
    waiting: deque[float] = deque()
    due_of: dict[ClientConnection, float] = {}
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    total = int(rate * seconds)
    finished = 0

    def start(due: float) -> None:
        if not idle:
            waiting.append(due)
            return
        connection = idle.popleft()
        due_of[connection] = due
        connection.send(target.request)

    def on_done(connection: ClientConnection, problem: str | None) -> None:
        nonlocal finished
        due = due_of[connection]
        if problem is None:
            tally.note(connection.done - due, connection.first - due, connection.reads)
        else:
            tally.note_error(problem)
        finished += 1
        if connection.transport is not None:
            idle.append(connection)
            if waiting:
                start(waiting.popleft())
        if finished == total and not over.done():
            over.set_result(None)

    for client in everyone:
        client.on_done = on_done
    started = perf_counter()
    for number in range(total):
        due = started + number / rate
        wait = due - perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        start(due)
    await asyncio.wait_for(over, 60)
    target.give_back(everyone)
    return tally.report(perf_counter() - started)


async def pairs(
    target: Target, context: tuple[int, bytes], generation: tuple[int, bytes], count: int
) -> dict[str, object]:
    """One client, alternating: through the proxy, then the same two legs straight to the workers.

    Added latency is the proxied time less the *median* time without a proxy. Two p99s are never subtracted.
    A leg is a port and a request; a context port of 0 leaves that leg out (single-leg proxies).
    """
    proxied, direct = Tally(), Tally()
    client = (await target.take(1))[0]
    context_client = await connect(context[0], None) if context[0] else None
    generation_client = await connect(generation[0], AnswerCheck(target.case))
    started = perf_counter()
    for _ in range(count):
        problem = await exchange(client, target.request)
        if problem is None:
            proxied.note(client.done - client.sent, client.first - client.sent, client.reads)
        else:
            proxied.note_error(problem)
        began = perf_counter()
        if context_client is not None:
            problem = await exchange(context_client, context[1])
        problem = problem or await exchange(generation_client, generation[1])
        if problem is None:
            direct.note(
                generation_client.done - began, generation_client.first - began, generation_client.reads
            )
        else:
            direct.note_error(problem)
    target.give_back([client])
    report = proxied.report(perf_counter() - started)
    report["errors"] = proxied.errors + direct.errors
    report["reasons"] = proxied.reasons + direct.reasons
    own, own_first = quantile(direct.latencies, 0.5), quantile(direct.first_tokens, 0.5)
    report["direct_p50_ms"] = own * 1e3
    report["direct_p99_ms"] = quantile(direct.latencies, 0.99) * 1e3
    report["added_p50_ms"] = (quantile(proxied.latencies, 0.5) - own) * 1e3
    report["added_p99_ms"] = (quantile(proxied.latencies, 0.99) - own) * 1e3
    report["added_first_p50_ms"] = (quantile(proxied.first_tokens, 0.5) - own_first) * 1e3
    for connection in (context_client, generation_client):
        if connection is not None and connection.transport is not None:
            connection.transport.close()
    return report


class OpenStreams:
    """Streams that stay open until the process ends."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._held: list[ClientConnection] = []

    async def open(self, count: int, at_once: int, gap: float = 0.0) -> dict[str, object]:
        """Open `count` more, `at_once` at a time, `gap` seconds apart; times to the first event."""
        tally = Tally()
        left = count
        started = perf_counter()

        async def one_after_another() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                connection = await connect(self._target.port, self._target.check)
                self._held.append(connection)
                try:
                    await asyncio.wait_for(_open_stream(connection, self._target.request), 60)
                    tally.note(0.0, connection.first - connection.sent, connection.reads)
                except (RuntimeError, TimeoutError) as error:
                    tally.note_error(f"{type(error).__name__}: {error}")
                if gap:
                    await asyncio.sleep(gap)

        await asyncio.gather(*(one_after_another() for _ in range(at_once)))
        report = tally.report(perf_counter() - started)
        report["held"] = sum(connection.transport is not None for connection in self._held)
        return report


async def _open_stream(connection: ClientConnection, request: bytes) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(_: ClientConnection, problem: str | None) -> None:
        if not over.done():
            over.set_exception(RuntimeError(problem))

    connection.endless = True
    connection.on_first = lambda _: None if over.done() else over.set_result(None)
    connection.on_done = fail
    connection.send(request)
    await over
