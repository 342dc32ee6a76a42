"""Sources on a clock that is moved by hand; waiting moves it."""

import asyncio
import logging

import pytest
from worker_fakes import Clock

from proxy.config.address import parse_worker_address
from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.discovery import Discovery
from proxy.workers.discovery.follower import Follower
from proxy.workers.discovery.once import Found, ask_once
from proxy.workers.discovery.source import SourceLost


def listed(*names):
    return [ListedWorker(parse_worker_address(f"{name}:1"), "context") for name in names]


class Script:
    """A source that tells lists and fails as it is told; a number lets time pass."""

    name = "script"

    def __init__(self, clock, *steps, longest_pause=30.0):
        self.clock = clock
        self.steps = list(steps)
        self.longest_pause = longest_pause
        self.closed = 0

    async def changes(self):
        try:
            while self.steps:
                step = self.steps.pop(0)
                if isinstance(step, BaseException):
                    raise step
                if isinstance(step, float):
                    self.clock.advance(step)
                else:
                    yield step
        finally:
            self.closed += 1


class Run:
    def __init__(self, *steps, jitter=1.0, refuse=0, **options):
        self.clock = Clock()
        self.source = Script(self.clock, *steps, **options)
        self.taken = []
        self.pauses = []
        self.refuse = refuse
        self.follower = Follower(
            self.source, self.take, clock=self.clock, sleep=self.sleep, jitter=lambda: jitter
        )

    async def take(self, source, workers):
        if self.refuse:
            self.refuse -= 1
            raise RuntimeError("no room")
        assert source == "script"
        self.taken.append([each.address.host for each in workers])

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        self.clock.advance(seconds)


LOST = SourceLost("gone")


async def test_lists_are_taken_when_they_change():
    run = Run(listed("a"), 5.0, listed("a"), 2.0, listed("a", "b"), 3.0)
    await run.follower.run()
    assert run.taken == [["a"], ["a", "b"]]
    status = run.follower.status
    assert (status.source, status.workers, status.age_seconds, status.errors) == ("script", 2, 3.0, 0)
    assert status.problem is None


async def test_a_list_that_is_right_again_is_young():
    run = Run(listed("a"), 5.0, listed("a"))
    await run.follower.run()
    assert run.follower.status.age_seconds == 0.0


async def test_a_lost_source_keeps_its_list_and_is_asked_later_each_time():
    run = Run(listed("a"), *[LOST] * 8, listed("b"))
    await run.follower.run()
    assert run.taken == [["a"], ["b"]]
    assert run.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert run.source.closed == 9


async def test_pauses_differ_between_proxies():
    run = Run(LOST, LOST, jitter=0.0)
    await run.follower.run()
    assert run.pauses == [0.25, 0.5]


async def test_a_source_that_fails_right_after_each_list_is_not_asked_all_the_time():
    run = Run(*[listed("a"), LOST] * 4)
    await run.follower.run()
    assert run.pauses == [0.5, 1.0, 2.0, 4.0]


async def test_a_failure_long_after_the_last_one_is_the_first_again():
    run = Run(LOST, LOST, listed("a"), 61.0, LOST)
    await run.follower.run()
    assert run.pauses == [0.5, 1.0, 0.5]


async def test_what_is_told_of_a_lost_source(caplog):
    caplog.set_level(logging.INFO)
    run = Run(listed("a"), *[LOST] * 8, SourceLost("other"), listed("a"))
    await run.follower.run()
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "script tells 1 workers",
        "script does not tell its workers: gone; its last list (1 workers) stays in force",
        # Again after a minute.
        "script does not tell its workers: gone; its last list (1 workers) stays in force",
        "script does not tell its workers: other; its last list (1 workers) stays in force",
        "script is back and tells the same 1 workers",
    ]
    assert run.follower.status.errors == 9


async def test_a_problem_is_part_of_the_status():
    run = Run(2.0, LOST, asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await run.follower.run()
    status = run.follower.status
    assert (status.problem, status.workers, status.errors, status.age_seconds) == ("gone", 0, 1, 2.5)


async def test_a_bug_of_a_source_is_logged_and_survived(caplog):
    run = Run(KeyError("x"), listed("a"))
    await run.follower.run()
    assert run.taken == [["a"]]
    assert "KeyError" in caplog.text


async def test_a_list_that_could_not_be_taken_is_offered_again(caplog):
    run = Run(listed("a"), listed("a"), refuse=1)
    await run.follower.run()
    assert run.taken == [["a"]]
    assert "no room" in caplog.text


class Waiting:
    name = "waiting"
    longest_pause = 1.0

    def __init__(self):
        self.closed = asyncio.Event()

    async def changes(self):
        try:
            yield listed("a")
            await asyncio.Event().wait()
        finally:
            self.closed.set()


async def test_all_are_followed_until_the_end():
    taken = asyncio.Event()

    async def take(source, workers):
        taken.set()

    source = Waiting()
    discovery = Discovery([source], take)
    discovery.start()
    await asyncio.wait_for(taken.wait(), 5)
    assert [status["source"] for status in await discovery.tell()] == ["waiting"]
    await discovery.close()
    assert source.closed.is_set()


class Silent(Waiting):
    async def changes(self):
        await asyncio.Event().wait()
        yield []


async def test_asking_once():
    source = Waiting()
    assert await ask_once(source, 5) == Found("waiting", listed("a"))
    assert source.closed.is_set()
    assert await ask_once(Silent(), 0.0) == Found("waiting", None, "no answer within 0 s")
    assert await ask_once(Script(Clock(), LOST), 5) == Found("script", None, "gone")
    assert await ask_once(Script(Clock()), 5) == Found("script", None, "it tells no list")
