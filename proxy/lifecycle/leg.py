"""One leg: one request to one worker, over a connection of the pool."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.lifecycle.watch import Watch
from proxy.upstream.connection import Answer, WorkerConnection
from proxy.upstream.head import ResponseHead
from proxy.wire.members import JSONBytes
from proxy.workers.worker import Worker


class Leg:
    """Sends a body to a worker and reads the answer, guarded by the request's watch.

    Args:
        worker: where to.
        head: the beginning of the request's head, up to `headers`.
        headers: encoded header lines that are the same for all legs of the request.
        watch: ends the leg when the client leaves or the deadline passes.
        phase, seconds: name and length of that deadline.

    Attributes:
        sent: the request has been handed to a connection: the worker may have seen it.
    """

    __slots__ = ("_head", "_headers", "_phase", "_seconds", "_watch", "connection", "sent", "worker")

    def __init__(
        self, worker: Worker, head: bytes, headers: bytes, watch: Watch, *, phase: str, seconds: float
    ) -> None:
        self.worker = worker
        self._head = head
        self._headers = headers
        self._watch = watch
        self._phase = phase
        self._seconds = seconds
        self.sent = False
        self.connection: WorkerConnection

    async def collect(self, body: Sequence[JSONBytes], *, fresh: bool = False) -> Answer:
        """Send the body and wait for the complete answer.

        Args:
            body: pieces, written without being joined.
            fresh: use no connection that has served before.

        Raises:
            LegFault, ClientGone: see `proxy.errors`.
        """
        connection = self._idle(fresh) or await self._connect()
        self._send(connection, body)
        try:
            return await connection.answer()
        finally:
            self._watch.release()

    async def head(self, body: Sequence[JSONBytes], *, fresh: bool = False) -> ResponseHead:
        """Send the body and wait for the head of the answer. The watch goes on guarding the leg.

        Raises:
            LegFault, ClientGone: see `proxy.errors`.
        """
        connection = self._idle(fresh) or await self._connect()
        self._send(connection, body)
        try:
            return await connection.head()
        except BaseException:
            self._watch.release()
            raise

    async def rest(self) -> Answer:
        """The complete answer, of which the head has been awaited. Raises as `collect` does."""
        try:
            return await self.connection.rest()
        finally:
            self._watch.release()

    def _idle(self, fresh: bool) -> WorkerConnection | None:
        self._watch.check()
        return None if fresh else self.worker.pool.take_idle()

    def _send(self, connection: WorkerConnection, body: Sequence[JSONBytes]) -> None:
        self.connection = connection
        length = 0
        for piece in body:
            length += len(memoryview(piece))
        head = b"%b%bcontent-length: %d\r\n\r\n" % (
            self._head,
            self._headers,
            length,
        )
        exchange = connection.send((head, *body))
        self.sent = True
        self._watch.guard(connection, exchange, self._phase, self._seconds)

    async def _connect(self) -> WorkerConnection:
        attempt = self.worker.pool.connect()
        self._watch.guard(attempt, 0, "connect", 0)
        try:
            connection = await attempt.future
            self._watch.check()
        except BaseException:
            attempt.give_up()
            raise
        finally:
            self._watch.release()
        return connection
