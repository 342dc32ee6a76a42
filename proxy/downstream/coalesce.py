"""Fewer, larger writes while the event loop has something to do (`stream_coalesce_ms`, off by default).

Each piece of a stream costs a wake-up, a read and a write, three quarters of which is kernel time. Here the pieces of
a stream wait for each other in the worker's socket: after each read the socket is left alone for some milliseconds,
and what has come meanwhile is one piece. So nothing is buffered here, and the order and flow control are the
kernel's. The first piece of an answer never waits, and none does while the loop is idle, where nothing would be
gained.
"""

from __future__ import annotations

import asyncio
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from proxy.downstream.sink import RelaySink

if TYPE_CHECKING:
    from proxy.downstream.cycle import RequestCycle
    from proxy.upstream.connection import WorkerConnection

_SAMPLE_SECONDS = 0.05
# Parts of a core. Waiting makes a loop less busy: it must not end the waiting.
_BUSY_ABOVE = 0.1
_IDLE_BELOW = 0.02


class LoopMeter:
    """Whether the event loop's thread has lately used more than a part of its core."""

    __slots__ = ("_busy", "_cpu", "_wall")

    def __init__(self) -> None:
        self._wall = perf_counter()
        self._cpu = thread_time()
        self._busy = False

    def busy(self) -> bool:
        """The state as of the last sample; samples are taken here, at most one each 50 ms."""
        now = perf_counter()
        passed = now - self._wall
        if passed >= _SAMPLE_SECONDS:
            cpu = thread_time()
            self._busy = cpu - self._cpu > (_IDLE_BELOW if self._busy else _BUSY_ABOVE) * passed
            self._wall, self._cpu = now, cpu
        return self._busy


class Gatherer:
    """Holds the sockets of one server's streams and lets all of them go together, which costs one wake-up.

    Args:
        seconds: for which a piece waits at most.
        meter: tells whether it is worth it.
    """

    def __init__(self, seconds: float, meter: LoopMeter) -> None:
        self._seconds = seconds
        self._meter = meter
        self._held: list[CoalescingSink] = []

    def hold(self, sink: CoalescingSink, source: WorkerConnection, loop: asyncio.AbstractEventLoop) -> bool:
        """Have the socket left alone until `sink.read_on` is called; False when the loop is idle."""
        if not self._meter.busy():
            return False
        if not self._held:
            loop.call_later(self._seconds, self._release)
        self._held.append(sink)
        source.hold()
        return True

    def _release(self) -> None:
        held, self._held = self._held, []
        for sink in held:
            sink.read_on()


class CoalescingSink(RelaySink):
    """A relay sink that has its source read only now and then while the loop is busy."""

    __slots__ = ("_gatherer", "_held")

    def __init__(
        self,
        cycle: RequestCycle,
        source: WorkerConnection,
        head: bytes,
        *,
        chunked: bool,
        known_length: bool = False,
        gatherer: Gatherer,
    ) -> None:
        super().__init__(cycle, source, head, chunked=chunked, known_length=known_length)
        self._gatherer = gatherer
        self._held = False

    def write(self, data: bytes) -> None:
        """See `proxy.upstream.connection.Sink`."""
        super().write(data)
        # One read can bring several pieces; the first of them begins the wait.
        if not self._held and self.source is not None:
            self._held = self._gatherer.hold(self, self.source, self._cycle.protocol.loop)

    def read_on(self) -> None:
        """The time is over."""
        self._held = False
        # None after the end: the connection may serve another exchange by now.
        if self.source is not None:
            self.source.release()
