"""`disagg_request_id`: the 63-bit key under which both workers know one request's KV transfer.

Layout (TRT#15309 and the protocol of `trtllm-serve disaggregated`), most significant bit first::

    0 | 39 bits milliseconds | 8 bits node | 6 bits process | 10 bits counter

and then moved into [2^40, 2^63 - 1), since workers number their own requests below 2^40.
"""

import random
import time
from collections.abc import Callable

MINIMUM_ID = 1 << 40
MAXIMUM_ID = (1 << 63) - 2
_TIMESTAMP_MASK = (1 << 39) - 1
_COUNTER_LIMIT = 1 << 10


def assemble_id(timestamp_ms: int, node_id: int, process_id: int, counter: int) -> int:
    """Put the parts of an id together.

    Raises:
        ValueError: node id outside 0..255 or process id outside 0..63.
    """
    if not 0 <= node_id < 256:
        raise ValueError(f"node_id must be in 0..255, not {node_id}")
    if not 0 <= process_id < 64:
        raise ValueError(f"process_id must be in 0..63, not {process_id}")
    raw = (timestamp_ms & _TIMESTAMP_MASK) << 24 | node_id << 16 | process_id << 10 | counter
    return raw % ((1 << 63) - 1 - MINIMUM_ID) + MINIMUM_ID


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _anywhere() -> int:
    return random.getrandbits(9)  # half of the counter's range


class RequestIds:
    """Mints ids that rise strictly within the process.

    The clock is the wall clock, since a monotonic clock starts again at each boot and ids would repeat;
    when it steps back the last used millisecond stays in force, and when the counter has come to its end within a
    millisecond the next one is borrowed.

    In each millisecond the counter starts somewhere in its lower half: proxies that chose the same node id by chance
    would otherwise mint the same id whenever they do so in the same millisecond, and workers refuse the second one.
    """

    __slots__ = ("_clock", "_counter", "_first", "_last_ms", "_node_id", "_process_id")

    def __init__(
        self,
        node_id: int,
        process_id: int = 0,
        clock: Callable[[], int] = _wall_clock_ms,
        first: Callable[[], int] = _anywhere,
    ) -> None:
        assemble_id(0, node_id, process_id, 0)  # refuse bad parts at once, not at the first request
        self._node_id = node_id
        self._process_id = process_id
        self._clock = clock
        self._first = first
        self._last_ms = -1
        self._counter = 0

    def mint(self) -> int:
        """The next id."""
        now = self._clock()
        if now > self._last_ms:
            self._last_ms = now
            self._counter = self._first()
        else:
            self._counter += 1
            if self._counter == _COUNTER_LIMIT:
                self._last_ms += 1
                self._counter = self._first()
        return assemble_id(self._last_ms, self._node_id, self._process_id, self._counter)
