import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

SHORT_SECONDS = 30.0
LONG_SECONDS = 300.0


class TimeBox:
    """Numbers of cases until the time is over; a failing number is the seed that repeats it.

    The same cases each time, so that a build does not fail by chance; FUZZ_FROM begins with another number, to look
    further.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.number = -1

    def __iter__(self) -> Iterator[int]:
        # FUZZ_SEED repeats one case.
        if "FUZZ_SEED" in os.environ:
            self.number = int(os.environ["FUZZ_SEED"])
            yield self.number
            return
        first = int(os.environ.get("FUZZ_FROM", "0"))
        end = time.monotonic() + self._seconds
        self.number = first
        while time.monotonic() < end:
            yield self.number
            self.number += 1


@pytest.fixture(
    params=[SHORT_SECONDS, pytest.param(LONG_SECONDS, marks=pytest.mark.long)], ids=["short", "long"]
)
def time_box(request: pytest.FixtureRequest) -> Iterator[TimeBox]:
    """Cases for some seconds."""
    box = TimeBox(request.param)
    return box


@pytest.fixture(autouse=True)
async def _nothing_unnoticed() -> AsyncIterator[None]:
    """Exceptions of callbacks, and of tasks that nobody awaits, fail the test."""
    noticed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noticed.append(context))
    yield
    gc.collect(1)
    await asyncio.sleep(0)
    assert noticed == []
