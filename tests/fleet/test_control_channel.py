import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.fleet.channel import ControlChannel
from proxy.fleet.commands import CommandFailed, ControlCommands, UnknownCommand


class End:
    """One end that records what it is asked and knows some commands."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.lost = asyncio.Event()
        self.channel = ControlChannel(self.handle, self.lost.set)
        self.hold = asyncio.Event()

    async def handle(self, command: str, body: Any) -> Any:
        self.seen.append((command, body))
        if command == "fail":
            raise ValueError("it is broken")
        if command == "hold":
            await self.hold.wait()
        return {"echo": body}


@pytest.fixture
async def ends() -> AsyncIterator[tuple[End, End]]:
    left, right = End(), End()
    for end, sock in zip((left, right), socket.socketpair(), strict=True):
        await end.channel.open(sock)
    yield left, right
    for end in (left, right):
        end.channel.close()
    await asyncio.sleep(0)


Ends = tuple[End, End]


async def test_both_ends_can_call(ends: Ends) -> None:
    left, right = ends
    assert await left.channel.call("status", {"a": [1, None]}) == {"echo": {"a": [1, None]}}
    assert await right.channel.call("status") == {"echo": None}
    assert right.seen == [("status", {"a": [1, None]})]


async def test_answers_may_come_in_any_order(ends: Ends) -> None:
    left, right = ends
    slow = asyncio.ensure_future(left.channel.call("hold", 1))
    assert await left.channel.call("status", 2) == {"echo": 2}
    right.hold.set()
    assert await slow == {"echo": 1}


async def test_large_messages(ends: Ends) -> None:
    left, _ = ends
    body = [f"worker-{number}.example:8000" for number in range(20_000)]
    assert await left.channel.call("workers", body) == {"echo": body}


async def test_line_breaks_are_no_matter(ends: Ends) -> None:
    assert await ends[0].channel.call("status", "a\nb\r\n") == {"echo": "a\nb\r\n"}


async def test_notices_are_not_answered_and_keep_their_order(ends: Ends) -> None:
    left, right = ends
    for number in range(100):
        left.channel.notify("note", number)
    await left.channel.call("status")
    assert right.seen == [*(("note", number) for number in range(100)), ("status", None)]


async def test_failures_come_back(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CommandFailed, match="ValueError: it is broken"):
        await ends[0].channel.call("fail")
    assert "the command fail failed" in caplog.text


async def test_no_answer_in_time(ends: Ends) -> None:
    left, right = ends
    with pytest.raises(CommandFailed, match=r"no answer within 0\.05 s"):
        await left.channel.call("hold", seconds=0.05)
    right.hold.set()
    assert await left.channel.call("status", 1) == {"echo": 1}


async def test_the_other_end_goes(ends: Ends) -> None:
    left, right = ends
    waiting = asyncio.ensure_future(left.channel.call("hold"))
    while not right.seen:
        await asyncio.sleep(0)
    right.channel.close()
    with pytest.raises(CommandFailed, match="has gone"):
        await waiting
    await asyncio.wait_for(left.lost.wait(), 5)
    assert not right.lost.is_set()
    with pytest.raises(CommandFailed, match="not connected"):
        await left.channel.call("status")
    left.channel.notify("status")


async def test_not_open_yet() -> None:
    end = End()
    with pytest.raises(CommandFailed, match="not connected"):
        await end.channel.call("status")
    end.channel.notify("status")
    end.channel.close()


async def test_commands() -> None:
    commands = ControlCommands()

    async def double(arguments: Any) -> Any:
        return arguments * 2

    commands.register("double", double)
    assert await commands.run("double", 4) == 8
    with pytest.raises(UnknownCommand, match="no command pause"):
        await commands.run("pause")
    with pytest.raises(ValueError, match="registered already"):
        commands.register("double", double)
