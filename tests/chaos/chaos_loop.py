"""An event loop in a thread of its own that notes whatever went wrong without anybody noticing."""

import asyncio
import gc
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import uvloop

SECONDS = 120.0
Result = TypeVar("Result")


class ChaosLoop:
    """Runs coroutines for tests.

    ``problems``: calls of the loop's exception handler (a task's exception was never retrieved, a callback raised)
    and log records at error level, as text.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.loop = uvloop.new_event_loop()
        self.loop.set_exception_handler(self._unhandled)
        self._log = _ErrorLog(self)
        logging.getLogger().addHandler(self._log)
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result], seconds: float = SECONDS) -> Result:
        """Run a coroutine and return its result; one that takes too long is cancelled."""
        running = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return running.result(seconds)
        except TimeoutError:
            running.cancel()
            raise

    def each(self, scenario: Callable[..., Coroutine[Any, Any, None]], **variants: Iterable[Any]) -> None:
        """Run a scenario side by side with every combination of these keyword arguments."""

        async def one(chosen: dict[str, Any]) -> None:
            try:
                await scenario(**chosen)
            except Exception as error:
                error.add_note(f"with {chosen}")
                raise

        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                for values in itertools.product(*variants.values()):
                    group.create_task(one(dict(zip(variants, values, strict=True))))

        self.call(together())

    def excuse(self, problem: str, times: int) -> None:
        """A problem that is to be expected, so often at most."""
        for _ in range(min(times, self.problems.count(problem))):
            self.problems.remove(problem)

    def close(self) -> None:
        """End the loop; what nobody has looked at becomes a problem now."""
        self.call(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        # After a failure sockets may be open, with which uvloop never closes.
        closing = threading.Thread(target=self.loop.close, name="chaos-close", daemon=True)
        closing.start()
        closing.join(SECONDS / 10)
        if closing.is_alive():
            self.problems.append("the loop does not close: sockets are open")
        logging.getLogger().removeHandler(self._log)

    async def _end(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        self.problems += [f"still running: {task!r}" for task in left]
        # With open sockets uvloop would never close.
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=SECONDS)
        del left
        gc.collect()
        await asyncio.sleep(0)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.problems.append(f"{context.get('message')}: {context.get('exception')!r} {context}")


class _ErrorLog(logging.Handler):
    def __init__(self, loop: ChaosLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        self._loop.problems.append(self.format(record))
