"""Writes one chunk per interval to each of many streams, evenly staggered over the interval.

The event loop's timers have a resolution of one millisecond, which would send the chunks of many streams in
lockstep and let a proxy handle several per wake-up. So a timerfd with nanosecond resolution wakes the loop,
and each new stream takes the next phase of a low-discrepancy sequence.
"""

import ctypes
import heapq
import os
import struct
import time
from asyncio import AbstractEventLoop, Transport
from collections.abc import Sequence

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000  # TFD_NONBLOCK | TFD_CLOEXEC, <sys/timerfd.h>
_GOLDEN = 0.6180339887498949


class Stream:
    """One open answer: which frame comes next and where it goes."""

    __slots__ = ("closed", "descriptor", "final", "frames", "next", "transport")

    def __init__(self, transport: Transport, frames: Sequence[bytes], final: bytes | None) -> None:
        """`final` is written one interval after the last frame; None repeats the frames for ever."""
        self.transport = transport
        self.descriptor: int = transport.get_extra_info("socket").fileno()
        self.frames = frames
        self.final = final
        self.next = 0
        self.closed = False

    def write_next(self) -> bool:
        """Write one frame in a system call of its own; False when the stream is over."""
        if self.closed:
            return False
        if self.next == len(self.frames):
            if self.final is not None:
                self.transport.write(self.final)
                self.closed = True
                return False
            self.next = 0
        frame = self.frames[self.next]
        self.next += 1
        if self.transport.get_write_buffer_size():
            self.transport.write(frame)
            return True
        # Past the transport: it would join frames that are written in one turn of the loop.
        try:
            sent = os.write(self.descriptor, frame)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.closed = True
            return False
        if sent < len(frame):
            self.transport.write(frame[sent:])
        return True


class Pacer:
    """All paced streams of one process."""

    def __init__(self, loop: AbstractEventLoop, interval: float) -> None:
        """`interval` in seconds."""
        self._interval = interval
        self._phase = 0.0
        self._due: list[tuple[float, int, Stream]] = []
        self._count = 0
        self._timer = _LIBC.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self._timer, self._wake)

    def add(self, stream: Stream) -> None:
        """Start a stream at its own phase of the interval, less than one interval from now."""
        self._phase = (self._phase + _GOLDEN) % 1.0
        now = time.monotonic()
        wait = (self._phase * self._interval - now) % self._interval
        self._count += 1
        heapq.heappush(self._due, (now + wait, self._count, stream))
        if self._due[0][2] is stream:
            self._arm()

    def _arm(self) -> None:
        due = self._due[0][0]
        seconds = int(due)
        value = struct.pack("qqqq", 0, 0, seconds, max(1, int((due - seconds) * 1e9)))
        _LIBC.timerfd_settime(self._timer, 1, value, None)  # 1: TFD_TIMER_ABSTIME

    def _wake(self) -> None:
        try:
            os.read(self._timer, 8)
        except BlockingIOError:
            return
        due = self._due
        limit = time.monotonic() + 2e-6
        # A bound per wake-up, so that a late pacer still lets the loop accept and read.
        for _ in range(256):
            if not due or due[0][0] > limit:
                break
            when, count, stream = due[0]
            if stream.write_next():
                heapq.heapreplace(due, (when + self._interval, count, stream))
            else:
                heapq.heappop(due)
        if due:
            self._arm()
