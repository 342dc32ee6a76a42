"""Admission with a clock that only tests move, and futures without a loop that runs."""

import asyncio
from collections.abc import Callable
from typing import Any

from proxy.admission.admission import Admission
from proxy.admission.limits import Limits


class FakeTimers:
    """Stands for the event loop's clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[tuple[float, Callable[[], None], FakeTimer]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> "FakeTimer":
        timer = FakeTimer()
        self._timers.append((self.now + seconds, callback, timer))
        return timer

    @property
    def armed(self) -> int:
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [entry for entry in self._timers if entry[0] <= self.now + 1e-9]
        self._timers = [entry for entry in self._timers if entry not in due]
        for _, callback, timer in due:
            if not timer.cancelled:
                callback()


class FakeTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """One process's admission."""

    def __init__(self, *, capacity: Any = None, board: Any = None, timers: Any = None, **limits: Any) -> None:
        self.timers = timers or FakeTimers()
        self.loop = asyncio.get_event_loop()
        self.admission = Admission(
            Limits(**limits), call_later=self.timers.call_later, capacity=capacity, board=board
        )

    def wait(self, **arguments: Any) -> tuple[Any, asyncio.Future[Any]]:
        future = self.loop.create_future()
        return self.admission.wait(future, **arguments), future

    def assert_empty(self) -> None:
        admission = self.admission
        assert (admission.in_flight, admission.in_context) == (0, 0)
        assert (admission.queued, admission.queued_bytes) == (0, 0)
        assert admission._keys == {}
        assert self.timers.armed == 0
