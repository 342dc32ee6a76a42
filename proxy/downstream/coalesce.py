"""Fewer, larger writes while the event loop is busy (`stream_coalesce_ms`, off by default).

Each piece of a stream costs a write, three quarters of which is kernel time. A busy loop saves most of it by
letting pieces of one stream wait for each other for some milliseconds; an idle one gains nothing, so there every
piece goes out at once. The first piece of an answer never waits.
"""

from __future__ import annotations

import asyncio
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from proxy.downstream.sink import RelaySink

if TYPE_CHECKING:
    from proxy.downstream.cycle import RequestCycle
    from proxy.errors import ProxyError
    from proxy.upstream.connection import WorkerConnection

_SAMPLE_SECONDS = 0.05
_BUSY_SHARE = 0.4
# Beyond this nothing is gained by waiting.
_ENOUGH = 16 * 1024


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
            self._busy = cpu - self._cpu > _BUSY_SHARE * passed
            self._wall, self._cpu = now, cpu
        return self._busy


class CoalescingSink(RelaySink):
    """A relay sink whose pieces wait up to `seconds` for more while the loop is busy."""

    __slots__ = ("_meter", "_seconds", "_timer", "_waiting", "_waiting_size")

    def __init__(
        self,
        cycle: RequestCycle,
        source: WorkerConnection,
        head: bytes,
        *,
        chunked: bool,
        known_length: bool = False,
        seconds: float,
        meter: LoopMeter,
    ) -> None:
        super().__init__(cycle, source, head, chunked=chunked, known_length=known_length)
        self._seconds = seconds
        self._meter = meter
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._timer: asyncio.TimerHandle | None = None

    def write(self, data: bytes) -> None:
        """See `proxy.upstream.connection.Sink`."""
        if not self._waiting and (not self.first_byte_at or not self._meter.busy()):
            super().write(data)
            return
        self._waiting.append(data)
        self._waiting_size += len(data)
        if self._waiting_size > _ENOUGH:
            self._flush()
        elif self._timer is None:
            self._timer = self._cycle.protocol.loop.call_later(self._seconds, self._flush)

    def end(self, data: bytes) -> None:
        """See `proxy.upstream.connection.Sink`."""
        super().end(self._take() + data)

    def broken(self, error: ProxyError) -> None:
        """See `proxy.upstream.connection.Sink`."""
        self._flush()
        super().broken(error)

    def close(self, last: bytes = b"") -> None:
        """See `RelaySink`."""
        self._flush()
        super().close(last)

    def _flush(self) -> None:
        if waiting := self._take():
            super().write(waiting)

    def _take(self) -> bytes:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        self._waiting_size = 0
        return b"".join(waiting)
