"""An event loop whose clock stands still until a test moves it."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any


class FakeTimer:
    def __init__(self, when: float, call: Callable[[], Any]) -> None:
        self._when = when
        self.call = call
        self.cancelled = False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """Timers and time are the test's; futures, tasks and everything else are the running loop's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = 1000.0
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._order = count()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> FakeTimer:
        timer = FakeTimer(when, lambda: callback(*arguments))
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_later(self, delay: float, callback: Callable[..., Any], *arguments: Any) -> FakeTimer:
        return self.call_at(self._now + delay, callback, *arguments)

    @property
    def armed(self) -> list[float]:
        """Seconds from now at which timers will fire."""
        return sorted(when - self._now for when, _, timer in self._timers if not timer.cancelled)

    def advance(self, seconds: float) -> None:
        """Move the clock and fire what becomes due, each timer at its own time."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self._now = max(self._now, when)
                timer.cancelled = True
                timer.call()
        self._now = end
