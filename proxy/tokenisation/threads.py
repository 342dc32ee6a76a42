"""The threads in which prompts are rendered and tokenised, so that the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

WAITING_PER_THREAD = 8
"""A prompt of 30,000 tokens takes 25 ms."""

_T = TypeVar("_T")


class TokenThreads:
    """Those of one process. To be made inside the event loop.

    Args:
        number: how many prompts are worked on at once.
    """

    def __init__(self, number: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(number, thread_name_prefix="tokenise")
        self._most = number * (1 + WAITING_PER_THREAD)
        self._working = 0

    @property
    def busy(self) -> bool:
        """Whether so much waits that nothing should be added."""
        return self._working >= self._most

    @property
    def idle(self) -> bool:
        """Whether nothing is being done."""
        return not self._working

    def run(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Do something in a thread; nobody needs to await it."""
        self._working += 1
        job = self._loop.run_in_executor(self._threads, work)
        job.add_done_callback(self._worked)
        return job

    def close(self) -> None:
        """Begin nothing any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _worked(self, _: object) -> None:
        self._working -= 1
