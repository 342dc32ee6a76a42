"""Decides for each request: in, wait, or refused.

A request is *in flight* from its admission to its end. It is admitted before its context leg is sent, and only if
the generation workers have room for it too, so that no context result waits for a generation worker. Those who
wait are admitted when a request ends, in the same call; only for what cannot be seen from here (other processes,
workers that come back) a timer looks again while somebody waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Protocol

from proxy.admission.board import AdmissionBoard
from proxy.admission.capacity import UNLIMITED, Capacity
from proxy.admission.limits import Limits
from proxy.admission.permit import Permit
from proxy.admission.queue import WaitingQueue
from proxy.admission.room import Other, has_room
from proxy.admission.waiter import Waiter
from proxy.errors import KeyLimitReached, Overloaded, Paused, ProxyError

if TYPE_CHECKING:
    import asyncio

# Other processes tell nothing when a request ends there.
_LOOK_AGAIN_FLEET = 0.010
_LOOK_AGAIN_ALONE = 0.1


class Timer(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None:
        """Do not call."""
        ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class Admission:
    """See the module's docstring.

    Args:
        limits: the configured numbers.
        call_later: of the event loop.
        capacity: tells what the workers can take; None when they have no limits.
        board: the counts of a fleet's processes; None for a single process.

    Attributes:
        refused: how many requests were refused, by error code.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        call_later: CallLater,
        capacity: Callable[[], Capacity] | None = None,
        board: AdmissionBoard | None = None,
    ) -> None:
        self._limits = limits
        self._call_later = call_later
        self._capacity = capacity
        self._board = board
        self._look_again = _LOOK_AGAIN_ALONE if board is None else _LOOK_AGAIN_FLEET
        self._unlimited = not limits.max_inflight and not limits.max_inflight_per_key and capacity is None
        self._free = self._unlimited  # nothing to compare, nobody waits: the common case
        self._paused = False
        self._running: set[Permit] = set()
        self._in_context = 0
        self._queue: WaitingQueue[Waiter] = WaitingQueue(by_priority=limits.queue_order == "priority")
        self._keys: dict[str, int] = {}
        self._timer: Timer | None = None
        self.refused: Counter[str] = Counter()

    # What is there

    @property
    def in_flight(self) -> int:
        """Requests of this process that were admitted and have not ended."""
        return len(self._running)

    @property
    def in_context(self) -> int:
        """Those of them whose context leg has not been answered."""
        return self._in_context

    @property
    def queued(self) -> int:
        """Requests of this process that wait."""
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        """Bytes of their bodies."""
        return self._queue.size

    @property
    def paused(self) -> bool:
        """Whether nobody is admitted until `resume`."""
        return self._paused

    # Coming and going

    def enter(self, key: str = "") -> Permit | None:
        """Admit a request if that is possible now; None: it has to `wait`.

        Args:
            key: name of the request's API key, empty without one.

        Raises:
            KeyLimitReached: too many requests of this key are here.
        """
        if not self._free:
            self.check_key(key)
            if self._paused or self._queue or not self._has_room():
                return None
            self._count_key(key, 1)
        permit = Permit(self, key)
        self._running.add(permit)
        self._in_context += 1
        if self._board is not None and not self._free:
            self._show()
        return permit

    def wait(
        self,
        future: asyncio.Future[Permit],
        *,
        key: str = "",
        size: int = 0,
        priority: float = 0.5,
        request_id: str = "",
        abort: Callable[[ProxyError], None] | None = None,
    ) -> Waiter:
        """Let a request wait that could not `enter`.

        Args:
            future: gets the permit.
            key: name of the request's API key, empty without one.
            size: of its body, bytes.
            priority: 0 to 1, higher first.
            request_id: of the request.
            abort: ends it with an error once it is admitted; its task may not have noticed that yet.

        Raises:
            KeyLimitReached, Overloaded, Paused: it may not even wait.
        """
        limits = self._limits
        self.check_key(key)
        if self._paused and (limits.pause_mode == "refuse" or len(self._queue) >= limits.max_queued):
            raise self._refusal(Paused("the proxy is paused"))
        if len(self._queue) >= limits.max_queued:
            raise self._refusal(Overloaded("too many requests are waiting", code="queue_full"))
        if limits.max_queued_bytes and self._queue.size + size > limits.max_queued_bytes:
            message = "the requests that are waiting hold too much memory"
            raise self._refusal(Overloaded(message, code="queue_bytes_full"))
        self._count_key(key, 1)
        waiter = Waiter(
            self, future, size=size, priority=priority, key=key, request_id=request_id, abort_admitted=abort
        )
        self._queue.add(waiter)
        self._serve()
        return waiter

    def withdraw(self, waiter: Waiter) -> bool:
        """A waiter leaves the queue; False when it was not there."""
        if not self._queue.remove(waiter):
            return False
        self._count_key(waiter.key, -1)
        self._serve()
        return True

    def leave(self, permit: Permit) -> None:
        """A request has ended; does nothing when called again."""
        if permit not in self._running:
            return
        self._running.remove(permit)
        if permit.in_context:
            permit.in_context = False
            self._in_context -= 1
        if not self._free:
            self._count_key(permit.key, -1)
            self._serve()

    def context_left(self) -> None:
        """Called by a permit: its context leg has been answered."""
        self._in_context -= 1
        if not self._free:
            self._serve()

    # API keys

    def most_of_key(self, key: str) -> int:
        """Requests of an API key that may be here at the same time; 0 = no limit."""
        return self._limits.max_inflight_per_key if key else 0

    def check_key(self, key: str, requests: int = 1) -> None:
        """Whether so many more requests of an API key may be here.

        Raises:
            KeyLimitReached: they may not.
        """
        limit = self.most_of_key(key)
        if not limit:
            return
        elsewhere = 0 if self._board is None else self._board.key_of_others(key)
        if self._keys.get(key, 0) + elsewhere + requests > limit:
            message = f"at most {limit} requests of one API key run at the same time"
            raise self._refusal(KeyLimitReached(message))

    # Pause

    def pause(self) -> None:
        """Admit nobody from now on."""
        self._paused = True
        self._free = False

    def resume(self) -> None:
        """Admit again, those who wait first."""
        self._paused = False
        self._serve()
        self._free = self._unlimited

    def abort_running(self, error: Callable[[], ProxyError]) -> int:
        """End all running requests of this process; returns their number.

        Args:
            error: makes the error that each of them ends with.
        """
        running = list(self._running)
        for permit in running:
            if permit.abort is not None:
                permit.abort(error())
        return len(running)

    def abort_requests(self, ids: Container[str] | None, error: Callable[[], ProxyError]) -> int:
        """End requests of this process that run or wait; returns their number.

        Args:
            ids: of the requests; None for all.
            error: makes the error that each of them ends with.
        """
        waiting = [each for each in self._queue if ids is None or each.request_id in ids]
        running = [each for each in self._running if ids is None or each.request_id in ids]
        for waiter in waiting:
            waiter.abort(0, error())
        for permit in running:
            if permit.abort is not None:
                permit.abort(error())
        return len(waiting) + len(running)

    # Deciding

    def _serve(self) -> None:
        """Admit those whose turn it is; look again later if others remain."""
        queue = self._queue
        if not queue and self._timer is None:
            if self._board is not None:
                self._show()
            return
        while queue and not self._paused and self._has_room():
            waiter = queue.first()
            queue.remove(waiter)
            permit = Permit(self, waiter.key)
            permit.request_id, permit.abort = waiter.request_id, waiter.abort_admitted
            if waiter.admit(permit):
                self._running.add(permit)
                self._in_context += 1
            else:
                self._count_key(waiter.key, -1)
        if self._board is not None:
            self._show()
        if queue and self._timer is None:
            self._timer = self._call_later(self._look_again, self._timer_fired)
        elif not queue and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timer_fired(self) -> None:
        self._timer = None
        self._serve()

    def _has_room(self) -> bool:
        in_flight, in_context = len(self._running), self._in_context
        in_context_limit, in_flight_limit = UNLIMITED if self._capacity is None else self._capacity()
        most = self._limits.max_inflight
        if most and (not in_flight_limit or most < in_flight_limit):
            in_flight_limit = most
        # Without a look at the others: most often the answer is here.
        if (in_flight_limit and in_flight >= in_flight_limit) or (
            in_context_limit and in_context >= in_context_limit
        ):
            return False
        if self._board is None:
            return True
        in_flight_elsewhere, in_context_elsewhere, waiting = self._board.sums()
        if not waiting:
            return (not in_flight_limit or in_flight + in_flight_elsewhere < in_flight_limit) and (
                not in_context_limit or in_context + in_context_elsewhere < in_context_limit
            )
        others = self._board.others()
        return has_room(
            in_flight_limit, in_flight, [Other(other.in_flight, other.waiting > 0) for other in others]
        ) and has_room(
            in_context_limit, in_context, [Other(other.in_context, other.waiting > 0) for other in others]
        )

    def _count_key(self, key: str, change: int) -> None:
        if not self._limits.max_inflight_per_key or not key:
            return
        count = self._keys.get(key, 0) + change
        if count:
            self._keys[key] = count
        else:
            del self._keys[key]
        if self._board is not None:
            self._board.show_key(key, count)

    def _show(self) -> None:
        if self._board is not None:
            self._board.show(len(self._running), self._in_context, len(self._queue))

    def _refusal(self, error: ProxyError) -> ProxyError:
        self.refused[error.code] += 1
        return error
