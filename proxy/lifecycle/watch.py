"""Ends the running leg when the client leaves or a deadline passes: one callback and one timer per request.

A leg is guarded from its start to its end. The timer is armed once and re-armed lazily: a later deadline only
stores a time, the timer that fires too early sets itself again. While an answer is relayed, pieces store the time
of the last read and nothing else; the idle deadline runs only while the worker is being read, since a paused
worker is not to blame for silence.
"""

from __future__ import annotations

import asyncio
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from proxy.errors import ClientGone, LegTimeout, ProxyError, QueueTimeout

if TYPE_CHECKING:
    from proxy.lifecycle.client import Client
    from proxy.upstream.connection import WorkerConnection

_SLACK = 0.001  # timers may fire a little early

TIMEOUT_CODES = {
    "queue": "queue_timeout",
    "connect": "connect_timeout",
    "context": "context_timeout",
    "first byte": "first_byte_timeout",
    "idle": "idle_timeout",
    "total": "deadline_exceeded",
}
"""Phase -> stable error code."""

_TOTAL = "total"
_CLIENT = "client"


def _timeout(phase: str) -> ProxyError:
    if phase == "queue":
        return QueueTimeout("no place became free in time")
    return LegTimeout(f"the {phase} time-out was exceeded", code=TIMEOUT_CODES[phase])


class Abortable(Protocol):
    """A running exchange or connection attempt."""

    def abort(self, exchange: int, error: ProxyError) -> None:
        """End it with `error`."""
        ...


class Watch:
    """The guard of one request's legs.

    Args:
        client: watched for leaving.
        loop: for the timer.
        stall_timeout: seconds that a client may take nothing of a relayed answer; 0 = for ever.
        total: seconds for everything from now on; 0 = no limit.

    Attributes:
        waited: seconds that the guarded exchanges have taken so far: the time during which the request waited for
            the queue, a worker, a pause or, in a relay, its client. A relay's own work is among it.
    """

    __slots__ = (
        "_client",
        "_due",
        "_ended",
        "_exchange",
        "_idle",
        "_loop",
        "_phase",
        "_relayed",
        "_since",
        "_stall",
        "_target",
        "_timer",
        "_total_due",
        "waited",
    )

    def __init__(
        self, client: Client, loop: asyncio.AbstractEventLoop, *, stall_timeout: float, total: float = 0.0
    ) -> None:
        self._client = client
        self._loop = loop
        self._stall = stall_timeout
        self._target: Abortable | None = None
        self._exchange = 0
        self._ended: ProxyError | None = None
        self._phase = ""
        self._due = 0.0
        self._relayed: WorkerConnection | None = None
        self._idle = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._total_due = loop.time() + total if total else 0.0
        self._since = 0.0
        self.waited = 0.0
        client.watch(self._client_gone)

    def check(self) -> None:
        """To be called before something is begun that `guard` will watch, without an await in between.

        Raises:
            ClientGone: the client has left already.
            LegTimeout: the time for the whole request is over.
            ProxyError: the request was aborted between two legs.
        """
        if self._ended is not None:
            raise self._ended
        if self._client.gone:
            raise ClientGone("the client left")
        if self._total_due and self._loop.time() >= self._total_due:
            raise _timeout(_TOTAL)

    def guard(self, target: Abortable, exchange: int, phase: str, seconds: float) -> None:
        """End `target`'s exchange after `seconds` (0 = never), or when the client leaves.

        Args:
            target, exchange: what to abort.
            phase: a key of `TIMEOUT_CODES`.
            seconds: for this phase alone.
        """
        self._target = target
        self._exchange = exchange
        self._relayed = None
        self._phase = phase
        self._due = self._loop.time() + seconds if seconds else 0.0
        self._since = perf_counter()
        self._arm()

    def guard_relay(self, source: WorkerConnection, idle: float) -> None:
        """From here on the guarded exchange is relayed: limit the silence between two pieces, seconds (0 = off)."""
        now = perf_counter()
        self.waited += now - self._since
        self._since = now
        self._relayed = source
        self._idle = idle
        self._phase = "idle"
        limit = idle or self._stall
        self._due = self._loop.time() + limit if limit else 0.0
        self._arm()

    def release(self) -> None:
        """The guarded exchange has ended."""
        if self._since:
            self.waited += perf_counter() - self._since
            self._since = 0.0
        self._target = self._relayed = None
        self._due = 0.0

    def close(self) -> None:
        """The request is over."""
        self.release()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due = self._next_due()
        if not due:
            return
        if self._relayed is not None:
            # A pause changes which limit runs and nobody tells: look as often as the shorter one asks.
            shorter = min((limit for limit in (self._idle, self._stall) if limit), default=inf)
            due = min(due, self._loop.time() + shorter)
        if self._timer is not None:
            if self._timer.when() <= due:
                return  # fires earlier and sets itself again
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._fired)

    def _next_due(self) -> float:
        if self._due and self._total_due:
            return min(self._due, self._total_due)
        return self._due or self._total_due

    def _fired(self) -> None:
        self._timer = None
        if self._target is None:
            return
        if self._relayed is not None and self._due:
            self._due = self._relay_due(self._relayed)
        due = self._next_due()
        if not due:
            return
        if self._loop.time() < due - _SLACK:
            self._arm()
        elif due == self._total_due:
            self.abort(_timeout(_TOTAL))
        elif self._phase == _CLIENT:
            self.abort(ClientGone("the client stopped reading", code="client_stalled"))
        else:
            self.abort(_timeout(self._phase))

    def _relay_due(self, source: WorkerConnection) -> float:
        self._phase = _CLIENT if source.reading_paused else "idle"
        since, limit = (
            (source.paused_since, self._stall) if source.reading_paused else (source.last_read, self._idle)
        )
        # With one of the two limits off, look again when the other could have begun to run.
        return since + limit if limit else self._loop.time() + (self._idle or self._stall)

    def _client_gone(self) -> None:
        self.abort(ClientGone("the client left"))

    def abort(self, error: ProxyError) -> None:
        """End the request: the guarded exchange fails with the error, or the next `check` raises it.

        An exchange may be over although its task has not noticed yet: then only `check` is left.
        """
        self._ended = error
        target, self._target = self._target, None
        if target is not None:
            target.abort(self._exchange, error)
