import asyncio
import time

from loop_lag import LoopLag


async def test_a_call_that_blocks_is_seen() -> None:
    async with LoopLag() as lag:
        await asyncio.sleep(0.02)
        time.sleep(0.04)
        await asyncio.sleep(0.02)
    assert 0.03 < lag.worst < 1.0


async def test_work_that_takes_long_is_seen() -> None:
    async with LoopLag() as lag:
        await asyncio.sleep(0.02)
        end = time.thread_time() + 0.04
        while time.thread_time() < end:
            pass
        await asyncio.sleep(0.02)
    assert 0.03 < lag.worst < 1.0


async def test_a_loop_that_has_nothing_to_do() -> None:
    """At least now and then: the machine may have something to do."""
    worst = []
    for _ in range(5):
        async with LoopLag() as lag:
            await asyncio.sleep(0.3)
        worst.append(lag.worst)
        if lag.worst < 0.02:
            break
    assert min(worst) < 0.02
