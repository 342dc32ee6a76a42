"""Messages that come again and again."""

import logging
from typing import Any

import pytest

from proxy.telemetry import repeats
from proxy.telemetry.repeats import RepeatFilter


class World:
    def __init__(self, burst: int = 1) -> None:
        self.now = 100.0
        self.filter = RepeatFilter(10.0, burst, lambda: self.now)

    def log(
        self,
        message: str,
        *arguments: Any,
        name: str = "proxy.x",
        level: int = logging.WARNING,
        error: Exception | None = None,
    ) -> str | None:
        """The text that passes, or None."""
        raised = None if error is None else (type(error), error, None)
        record = logging.LogRecord(name, level, "f.py", 1, message, arguments, raised)
        return record.getMessage() if self.filter.filter(record) else None


def test_a_message_is_said_once_in_a_while_with_a_count() -> None:
    world = World()
    assert world.log("worker %s is ill", "a") == "worker a is ill"
    for _ in range(4):
        world.now += 2
        assert world.log("worker %s is ill", "a") is None
    world.now += 2
    assert world.log("worker %s is ill", "a") == "worker a is ill (4 more of these in the meantime)"
    assert world.log("worker %s is ill", "a") is None
    world.now += 10
    assert world.log("worker %s is ill", "a") == "worker a is ill (1 more of these in the meantime)"
    world.now += 10
    assert world.log("worker %s is ill", "a") == "worker a is ill"


def test_a_few_are_news() -> None:
    world = World(burst=3)
    assert [world.log("started") for _ in range(5)] == ["started"] * 3 + [None] * 2
    world.now += 10
    assert world.log("started") == "started (2 more of these in the meantime)"
    world.now += 10
    assert world.log("started") == "started"


def test_exceptions_are_known_by_their_place() -> None:
    world = World()
    assert world.log("request %s failed", "a", error=ValueError("1")) is not None
    assert world.log("request %s failed", "b", error=ValueError("2")) is None
    assert world.log("request %s failed", "c", error=KeyError("1")) is not None
    assert world.log("request %s failed", "d") is not None


def test_others_pass() -> None:
    world = World()
    texts = [
        world.log("worker %s is ill", "a"),
        world.log("worker %s is ill", "b"),
        world.log("worker %s is ill", "a", level=logging.ERROR),
        world.log("worker %s is ill", "a", name="proxy.y"),
    ]
    assert None not in texts


def test_access_lines_always_pass() -> None:
    world = World()
    assert [world.log("same", name="proxy.access") for _ in range(3)] == ["same"] * 3


def test_percent_signs_survive() -> None:
    world = World()
    world.log("%s", "100 %d")
    world.log("%s", "100 %d")
    world.now += 10
    assert world.log("%s", "100 %d") == "100 %d (1 more of these in the meantime)"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "_MOST", 3)
    world = World()
    for number in range(10):
        world.log("%d", number)
    assert len(world.filter._seen) == 3
    assert world.log("%d", 9) is None
    assert world.log("%d", 0) == "0"
