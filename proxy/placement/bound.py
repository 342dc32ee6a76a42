"""How much load affinity may put on one worker."""

_RELATIVE = 1.25
_ABSOLUTE = 4
"""With few legs in flight a share alone would break up conversations although nobody is overloaded."""


def load_limit(total: int, workers: int) -> int:
    """The most legs that one of `workers` may have after one more is placed, `total` being in flight now.

    A quarter above the mean or four legs above it, whichever is more. The least loaded worker is never above it.
    """
    mean = (total + 1) / workers
    return int(max(mean * _RELATIVE, mean + _ABSOLUTE))
