"""The engine's speed and its running batch; everything a request waits for can be aborted."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


class Aborted(Exception):
    """The client has left: the request ends without an answer."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a worker is; zeros mean as fast as possible.

    Prefill: tokens per second, shared by all requests. Decode: milliseconds per step, plus so much per running
    request. ``max_batch``: how many requests run at once (0: no limit), the others wait.
    """

    prefill_tokens_per_second: float = 0.0
    decode_ms: float = 0.0
    decode_ms_per_request: float = 0.0
    max_batch: int = 0


class Run:
    """One request in the engine. `abort` ends whatever it waits for, and is counted if the request is."""

    __slots__ = ("_counted", "_engine", "_waiter", "aborted", "finished")

    def __init__(self, engine: "Engine", *, counted: bool = True) -> None:
        self._engine = engine
        self._counted = counted
        self._waiter: asyncio.Future[None] | None = None
        self.aborted = False
        self.finished = False

    def abort(self) -> None:
        """Count the abort and wake the request; does nothing after the end."""
        if self.finished or self.aborted:
            return
        self.aborted = True
        self._engine.aborts += self._counted
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(Aborted())

    async def wait(self, future: asyncio.Future[None]) -> None:
        """Wait for the engine. Raises `Aborted` when the client leaves."""
        if self.aborted:
            future.cancel()
            raise Aborted
        self._waiter = future
        try:
            await future
        finally:
            self._waiter = None

    async def sleep(self, seconds: float | None) -> None:
        """Wait for a time, or for ever (until the abort) when it is None."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        handle = None if seconds is None else loop.call_later(seconds, _resolve, future)
        try:
            await self.wait(future)
        finally:
            if handle is not None:
                handle.cancel()

    async def step(self) -> None:
        """Wait for the next decode step."""
        if self.aborted:
            raise Aborted
        if self._engine.is_instant:
            await asyncio.sleep(0)
        else:
            await self.wait(self._engine.next_step())
        if self.aborted:
            raise Aborted


class Engine:
    """The running batch of one worker."""

    def __init__(self, speed: Speed) -> None:
        self.speed = speed
        self.running = 0
        self.max_running = 0
        self.aborts = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._steppers: list[asyncio.Future[None]] = []
        self._tick: asyncio.TimerHandle | None = None
        self._last_tick = 0.0
        self._prefill_free_at = 0.0

    @property
    def waiting(self) -> int:
        """Requests that wait for a place in the batch."""
        return sum(not future.done() for future in self._queue)

    @property
    def is_instant(self) -> bool:
        """Whether decode steps take no time."""
        return not (self.speed.decode_ms or self.speed.decode_ms_per_request)

    def step_seconds(self) -> float:
        """How long a decode step of the present batch takes."""
        return (self.speed.decode_ms + self.speed.decode_ms_per_request * self.running) / 1000

    @asynccontextmanager
    async def place(self, run: Run) -> AsyncIterator[None]:
        """Hold a place in the batch; waits while it is full."""
        if self.speed.max_batch and self.running >= self.speed.max_batch:
            await self._wait_for_place(run)
        else:
            self.running += 1
        self.max_running = max(self.max_running, self.running)
        try:
            yield
        finally:
            self._leave()

    async def _wait_for_place(self, run: Run) -> None:
        future = asyncio.get_running_loop().create_future()
        self._queue.append(future)
        try:
            await run.wait(future)
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._leave()  # the place was handed over, but nobody is there to use it
            else:
                future.cancel()
            raise

    def _leave(self) -> None:
        # A place is handed over rather than freed, so that newcomers cannot overtake the queue.
        while self._queue:
            future = self._queue.popleft()
            if not future.done():
                future.set_result(None)
                return
        self.running -= 1

    async def prefill(self, run: Run, tokens: int) -> None:
        """Compute a prompt; prompts queue for the engine's prefill rate."""
        rate = self.speed.prefill_tokens_per_second
        if run.aborted:
            raise Aborted
        if not rate:
            return
        now = asyncio.get_running_loop().time()
        self._prefill_free_at = max(now, self._prefill_free_at) + tokens / rate
        await run.sleep(self._prefill_free_at - now)

    async def decode_all(self, run: Run, steps: int) -> None:
        """Wait for many steps at once, for answers that are not streamed (at the present batch's speed)."""
        if run.aborted:
            raise Aborted
        if steps > 0 and not self.is_instant:
            await run.sleep(steps * self.step_seconds())

    def next_step(self) -> asyncio.Future[None]:
        """A future of the step that all running requests share."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._steppers.append(future)
        if self._tick is None:
            # Steps keep their rhythm: the next one counts from the last one, not from this call.
            due = max(loop.time(), self._last_tick + self.step_seconds())
            self._tick = loop.call_at(due, self._on_tick)
        return future

    def _on_tick(self) -> None:
        self._tick = None
        self._last_tick = asyncio.get_running_loop().time()
        steppers, self._steppers = self._steppers, []
        for future in steppers:
            _resolve(future)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
