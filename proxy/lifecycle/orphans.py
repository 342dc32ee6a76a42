"""Hand-offs whose client has left: the generation leg is still sent and closed at its first byte.

Once a context worker has answered it holds KV until a generation worker has pulled it, or until its own time-out
(60 s), and there is no call that releases it. Aborting a generation worker after its first token frees both sides
cleanly (dynamo#14507); not sending the leg strands the KV. Drains are bounded in number and time and counted: one gets
no longer for its first byte than a request with a client does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from proxy.errors import ClientGone, ProxyError
from proxy.upstream.connection import Sink, WorkerConnection
from proxy.wire.members import JSONBytes

if TYPE_CHECKING:
    from proxy.config.address import WorkerAddress
    from proxy.workers.pool import WorkerPool
    from proxy.workers.worker import Worker

    LegMaker = Callable[[Worker], tuple[Sequence[JSONBytes], bytes]]

MOST_DRAINS = 64
MOST_SECONDS = 30.0


class OrphanDrains:
    """The drains of one process.

    Args:
        timeout_first_byte: of generation legs, seconds; 0 = no limit.

    Attributes:
        outcomes: how many ended as `drained`, `failed`, `refused` (too many at once), `dropped` (by policy) or
            `lost` (no drain can help: nobody knows whether it was taken).
    """

    def __init__(self, timeout_first_byte: float) -> None:
        self._seconds = min(timeout_first_byte or MOST_SECONDS, MOST_SECONDS)
        self._tasks: set[asyncio.Task[None]] = set()
        self.outcomes: Counter[str] = Counter()

    @property
    def running(self) -> int:
        """Drains that have not ended."""
        return len(self._tasks)

    def drain(
        self, pool: WorkerPool, exclude: Collection[WorkerAddress], target: bytes, leg: LegMaker
    ) -> None:
        """Send a generation leg for nobody.

        Args:
            pool: the generation workers.
            exclude: the worker that has the request's context leg.
            target: path and query string.
            leg: makes body and headers for the worker that was chosen; must ask for a stream.
        """
        if len(self._tasks) >= MOST_DRAINS:
            self.outcomes["refused"] += 1
            return
        task = asyncio.get_running_loop().create_task(self._drain(pool, exclude, target, leg))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop(self) -> None:
        """Count a hand-off that is left to the context worker's time-out."""
        self.outcomes["dropped"] += 1

    def lose(self) -> None:
        """Count a hand-off that may be held until its time-out: the leg that gave it or was to take it has failed."""
        self.outcomes["lost"] += 1

    async def close(self) -> None:
        """End all drains."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drain(
        self, pool: WorkerPool, exclude: Collection[WorkerAddress], target: bytes, leg: LegMaker
    ) -> None:
        outcome = "failed"
        try:
            async with asyncio.timeout(self._seconds):
                with pool.reserve(exclude=exclude) as worker:
                    body, headers = leg(worker)
                    connection = worker.pool.take_idle() or await _connected(worker)
                    length = sum(len(memoryview(piece)) for piece in body)
                    head = b"%b%bcontent-length: %d\r\n\r\n" % (worker.request_head(target), headers, length)
                    if await _first_byte(connection, (head, *body)):
                        outcome = "drained"
        except (ProxyError, TimeoutError):
            pass
        finally:
            self.outcomes[outcome] += 1


async def _connected(worker: Worker) -> WorkerConnection:
    attempt = worker.pool.connect()
    try:
        return await attempt.future
    except BaseException:
        attempt.give_up()
        raise


async def _first_byte(connection: WorkerConnection, request: Sequence[JSONBytes]) -> bool:
    """Run an exchange up to the first byte of the answer's body; whether it was a 200."""
    exchange = connection.send(request)
    try:
        head = await connection.head()
        sink = _FirstByte()
        connection.relay(sink)
        await sink.seen
        return head.status == 200
    finally:
        connection.abort(exchange, ClientGone("drained"))


class _FirstByte(Sink):
    """Tells when anything at all has come."""

    def __init__(self) -> None:
        self.framed = False
        self.seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> None:
        self._done()

    def end(self, data: bytes) -> None:
        self._done()

    def broken(self, error: ProxyError) -> None:
        self._done()

    def _done(self) -> None:
        if not self.seen.done():
            self.seen.set_result(None)
