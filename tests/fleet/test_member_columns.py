"""A process that asks its supervisor for columns while its last legs on a leaving worker end."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from proxy.config.address import parse_worker_address
from proxy.config.load import load_settings
from proxy.fleet.channel import ControlChannel
from proxy.fleet.columns import ColumnBook, Grant
from proxy.fleet.handover import Handover
from proxy.fleet.member import FleetMember, metrics_rows
from proxy.fleet.memory import create_memory
from proxy.placement.load_table import LoadTable
from proxy.telemetry.shared import SharedMetrics

HERE, THERE = parse_worker_address("a:1"), parse_worker_address("b:1")


class Supervisor:
    """The other end of one process's control channel, with a book of columns."""

    def __init__(self) -> None:
        self.book = ColumnBook(16)
        self.asked: list[list[str]] = []
        self.hold = asyncio.Event()
        self.holding = asyncio.Event()
        self.ours, self.theirs = socket.socketpair()
        self.channel = ControlChannel(self.handle, lambda: None)

    async def handle(self, command: str, body: Any) -> Any:
        if command == "release":
            self.book.release(0, *body)
            return None
        assert command == "columns"
        self.asked.append(body)
        self.holding.set()
        await self.hold.wait()
        return msgspec.to_builtins({address: self.book.grant(0, address) for address in body})

    def member(self, grants: dict[str, Grant]) -> FleetMember:
        handover = Handover(
            index=0,
            processes=1,
            settings=load_settings(None, overrides={}, environ={}),
            control=self.theirs.detach(),
            listeners=(),
            load_table=create_memory("load", LoadTable.bytes_needed(1, 16)),
            metrics=create_memory("metrics", SharedMetrics.size(metrics_rows(1))),
            columns=16,
            grants=grants,
            kept=(),
            successor=False,
        )
        return FleetMember(handover)


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor()
    await supervisor.channel.open(supervisor.ours)
    yield supervisor
    supervisor.channel.close()


async def test_a_column_that_is_given_back_meanwhile_is_fetched_again(supervisor: Supervisor) -> None:
    member = supervisor.member({"a:1": supervisor.book.grant(0, "a:1")})
    await member.open()
    preparing = asyncio.ensure_future(member.prepare([HERE, THERE]))
    await asyncio.wait_for(supervisor.holding.wait(), 5)
    member.columns.release(HERE)
    supervisor.hold.set()
    await asyncio.wait_for(preparing, 5)
    assert supervisor.asked == [["b:1"], ["a:1"]]
    assert member.columns.acquire(HERE).number != member.columns.acquire(THERE).number


async def test_nothing_is_asked_when_all_is_there(supervisor: Supervisor) -> None:
    member = supervisor.member({"a:1": supervisor.book.grant(0, "a:1")})
    await member.open()
    await member.prepare([HERE])
    assert supervisor.asked == []
