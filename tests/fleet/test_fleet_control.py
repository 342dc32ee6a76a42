"""The supervisor in this process, with small processes that only answer commands."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fleet_stack import alive

from proxy.config.address import parse_worker_address
from proxy.config.load import load_settings
from proxy.fleet.channel import ControlChannel
from proxy.fleet.columns import ColumnBook
from proxy.fleet.commands import MemberAnswer
from proxy.fleet.listeners import Listeners
from proxy.fleet.supervisor import Supervisor
from proxy.fleet.worker_lists import WorkerLists

PROCESSES = 3
ECHO = (sys.executable, str(Path(__file__).with_name("fleet_echo.py")))


def supervisor_of(command: tuple[str, ...]) -> Supervisor:
    sections = {"hostname": "127.0.0.1", "num_workers": PROCESSES, "context_servers": {"urls": ["ctx:1"]}}
    settings = load_settings(None, overrides=sections, environ={})
    return Supervisor(settings, None, Listeners("127.0.0.1", 0), command)


class Fleet:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.supervisor = supervisor_of(ECHO)
        self.running = asyncio.ensure_future(self.supervisor.run())

    async def whoami(self) -> list[dict[str, Any]]:
        """Every process's answer; waits until there are all."""
        async with asyncio.timeout(10):
            while True:
                answers = await self.supervisor.broadcast("whoami")
                if all(answer.error is None for answer in answers):
                    return [answer.result for answer in answers]
                await asyncio.sleep(0.02)

    async def broadcast_from(self, index: int, **request: Any) -> list[dict[str, Any]]:
        """Have a process broadcast; what it got."""
        (self.directory / "request.json").write_text(json.dumps(request))
        path = self.directory / f"{index}.json"
        path.unlink(missing_ok=True)
        os.kill((await self.whoami())[index]["pid"], signal.SIGUSR1)
        async with asyncio.timeout(10):
            while not path.exists():
                await asyncio.sleep(0.01)
        return json.loads(path.read_text())  # type: ignore[no-any-return]


@pytest.fixture
async def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setenv("FLEET_ECHO", str(tmp_path))
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.supervisor.drain()
    assert await asyncio.wait_for(fleet.running, 20) == 0


async def test_a_broadcast_reaches_everybody_from_anywhere(fleet: Fleet) -> None:
    pids = [answer["pid"] for answer in await fleet.whoami()]
    assert len(set(pids)) == PROCESSES
    for index in range(PROCESSES):
        answers = await fleet.broadcast_from(index, command="whoami", arguments=[index])
        assert [answer["process"] for answer in answers] == [0, 1, 2]
        assert [answer["result"]["pid"] for answer in answers] == pids
        assert [answer["result"]["arguments"] for answer in answers] == [[index]] * PROCESSES


async def test_each_process_fails_for_itself(fleet: Fleet) -> None:
    await fleet.whoami()
    assert await fleet.supervisor.broadcast("fail") == [
        MemberAnswer(0),
        MemberAnswer(1, error="ValueError: one cannot"),
        MemberAnswer(2),
    ]
    answers = await fleet.supervisor.broadcast("nonsense")
    assert {answer.error for answer in answers} == {"UnknownCommand: there is no command nonsense"}


async def test_a_new_process_carries_out_what_was_kept(fleet: Fleet) -> None:
    await fleet.whoami()
    await fleet.broadcast_from(0, command="mode", arguments="pause", keep="mode")
    await fleet.broadcast_from(2, command="mode", arguments="resume", keep="mode")
    await fleet.broadcast_from(1, command="mode", arguments="not kept")
    before = await fleet.whoami()
    os.kill(before[1]["pid"], signal.SIGKILL)
    while (after := await fleet.whoami())[1]["pid"] == before[1]["pid"]:
        await asyncio.sleep(0.02)
    assert [answer["modes"] for answer in after] == [
        ["pause", "resume", "not kept"],
        ["resume"],
        before[2]["modes"],
    ]
    assert [answer["index"] for answer in after] == [0, 1, 2]
    assert [after[index]["pid"] for index in (0, 2)] == [before[index]["pid"] for index in (0, 2)]


async def test_what_changes_while_a_process_connects(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has been given what was kept before, and a broadcast does not reach it yet."""
    before = await fleet.whoami()
    connect = ControlChannel.open

    async def broadcast_first(channel: ControlChannel, sock: socket.socket) -> None:
        answers = await fleet.supervisor.broadcast("mode", "late", keep="mode")
        assert [answer.error for answer in answers] == [None, "the process is not running", None]
        await fleet.supervisor.broadcast("workers", lists("ctx:2"))
        await connect(channel, sock)

    monkeypatch.setattr(ControlChannel, "open", broadcast_first)
    os.kill(before[1]["pid"], signal.SIGKILL)
    async with asyncio.timeout(10):
        while (after := (await fleet.whoami())[1])["pid"] == before[1]["pid"] or not after["modes"]:
            await asyncio.sleep(0.02)
    assert after["modes"] == ["late"]
    assert after["held"] == ["ctx:2"]


async def test_more_workers_than_columns(fleet: Fleet) -> None:
    """Nobody fails for them, not even a process that starts."""
    fleet.supervisor._columns = ColumnBook(1)
    before = await fleet.whoami()
    answers = await fleet.supervisor.broadcast("workers", lists("ctx:1", "ctx:2"))
    assert {answer.error for answer in answers} == {"TableFull: no column was granted for ctx:2"}
    os.kill(before[0]["pid"], signal.SIGKILL)
    async with asyncio.timeout(10):
        while (await fleet.whoami())[0]["pid"] == before[0]["pid"]:
            await asyncio.sleep(0.02)


async def test_a_process_that_is_gone_is_told_as_such(fleet: Fleet) -> None:
    before = await fleet.whoami()
    os.kill(before[0]["pid"], signal.SIGSTOP)
    asked = asyncio.ensure_future(fleet.supervisor.broadcast("whoami"))
    await asyncio.sleep(0.05)
    os.kill(before[0]["pid"], signal.SIGKILL)
    answers = await asked
    assert [answer.error for answer in answers] == ["the process has gone", None, None]
    await fleet.whoami()


def lists(*addresses: str) -> Any:
    return WorkerLists(tuple(map(parse_worker_address, addresses)), (), ()).arguments


async def test_a_column_goes_to_another_worker_only_when_all_have_released_it(fleet: Fleet) -> None:
    async def workers(*addresses: str) -> dict[str, list[int]]:
        """The columns, on which all processes agree."""
        first, *others = await fleet.supervisor.broadcast("workers", lists(*addresses))
        assert first.error is None
        assert all(other.result == first.result for other in others)
        return first.result  # type: ignore[no-any-return]

    async def let_go(index: int) -> None:
        channel = fleet.supervisor.processes[index].channel
        assert channel is not None
        await channel.call("let_go", {"arguments": "ctx:1"})

    await fleet.whoami()
    assert await workers("ctx:1", "ctx:2") == {"ctx:1": [0, 1], "ctx:2": [1, 1]}
    await workers("ctx:2")
    await let_go(0)
    await let_go(1)
    channel = fleet.supervisor.processes[0].channel
    assert channel is not None
    assert await channel.call("find", {"arguments": "ctx:3"}) == [2, 1]
    # The last holder dies; its row of the table has been cleared.
    pid = fleet.supervisor.processes[2].pid
    os.kill(pid, signal.SIGKILL)
    while fleet.supervisor.processes[2].pid in (0, pid):
        await asyncio.sleep(0.01)
    await fleet.whoami()
    assert await channel.call("find", {"arguments": "ctx:4"}) == [0, 2]


async def test_drain_from_a_process_ends_all_for_good(fleet: Fleet) -> None:
    pids = [answer["pid"] for answer in await fleet.whoami()]
    (fleet.directory / "request.json").write_text(json.dumps({"command": "drain"}))
    os.kill(pids[1], signal.SIGUSR1)
    assert await asyncio.wait_for(asyncio.shield(fleet.running), 10) == 0
    assert not any(map(alive, pids))


async def test_a_fleet_that_cannot_serve_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = supervisor_of((sys.executable, "-c", "raise SystemExit(3)"))
    assert await asyncio.wait_for(supervisor.run(), 20) == 1
    assert "process 0 ended unasked" in caplog.text
    assert "(exit code 3)" in caplog.text
    assert "no process can serve: giving up" in caplog.text
