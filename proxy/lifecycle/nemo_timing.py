"""When a request came and when it went on to a worker, as NeMo-RL wants to know it (`proxy.nemo_timing`)."""

from __future__ import annotations

from time import perf_counter, time_ns


class NemoStamps:
    """The two times of one request, microseconds since 1970: they are compared with those of other machines.

    Args:
        received: `perf_counter` seconds.
        headers: encoded header lines of its legs.
    """

    __slots__ = ("_forwarded", "_headers", "_received")

    def __init__(self, received: float, headers: bytes) -> None:
        passed = int((perf_counter() - received) * 1e6)
        self._received = time_ns() // 1000 - passed
        self._forwarded = self._received
        self._headers = headers

    def forwarded(self) -> bytes:
        """The request goes on to a worker: the header lines of its legs from now on."""
        self._forwarded = time_ns() // 1000
        return b"%bx-nemo-fe-recv-us: %d\r\nx-nemo-fe-fwd-us: %d\r\n" % (
            self._headers,
            self._received,
            self._forwarded,
        )

    def fields(self) -> dict[str, bytes]:
        """Members of the answer."""
        return {
            "nemo_fe_recv_ts_us": b"%d" % self._received,
            "nemo_fe_fwd_ts_us": b"%d" % self._forwarded,
        }
