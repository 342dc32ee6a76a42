"""How long an event loop kept its callbacks waiting."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

_TICK = 0.005
# Of this thread: nanoseconds on a CPU, nanoseconds ready but waiting for one, time slices (Documentation/scheduler/
# sched-stats.rst of Linux).
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class LoopLag:
    """Measures while the block runs. Time in which the thread was ready and the machine had no CPU for it does not
    count: that is the test machine's fault, not that of the code in the loop.

    ``worst``: seconds.
    """

    def __init__(self) -> None:
        self.worst = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _tick(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due, waited = now() + _TICK, _waited()
            await asyncio.sleep(_TICK)
            late = now() - due - (_waited() - waited)
            self.worst = max(self.worst, late)


def _waited() -> float:
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0
