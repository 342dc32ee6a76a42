"""A process for tests of the supervisor: no server, some commands, and a broadcast of its own on SIGUSR1.

It writes the answers of the broadcast to `<directory>/<index>.json`; the directory is in FLEET_ECHO.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.fleet.handover import Handover
from proxy.fleet.member import FleetMember
from proxy.fleet.worker_lists import WorkerLists

DIRECTORY = Path(os.environ["FLEET_ECHO"])


class Echo:
    def __init__(self, member: FleetMember) -> None:
        self.member = member
        self.modes: list[Any] = []
        self.held: dict[str, WorkerAddress] = {}
        self.ended = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        for command in (self.whoami, self.mode, self.fail, self.drain, self.workers, self.let_go, self.find):
            member.commands.register(command.__name__, command)
        member.orphaned = self.ended.set

    async def whoami(self, arguments: Any) -> Any:
        return {
            "pid": os.getpid(),
            "index": self.member.index,
            "modes": self.modes,
            "held": list(self.held),
            "arguments": arguments,
        }

    async def mode(self, arguments: Any) -> None:
        self.modes.append(arguments)

    async def fail(self, arguments: Any) -> None:
        if self.member.index == 1:
            raise ValueError("one cannot")

    async def drain(self, arguments: Any) -> None:
        self.ended.set()

    async def workers(self, arguments: Any) -> dict[str, list[int]]:
        """Hold a column for each listed worker; tells number and generation of each."""
        columns = self.member.columns
        self.held |= {address.text: address for address in WorkerLists.read(arguments).context}
        return {text: list(columns.acquire(address)) for text, address in self.held.items()}

    async def let_go(self, arguments: Any) -> None:
        """Give the column of a worker back."""
        self.member.columns.release(self.held.pop(arguments))

    async def find(self, arguments: Any) -> list[int]:
        """Get a column for a worker that this process alone has found."""
        address = parse_worker_address(arguments)
        await self.member.prepare([address])
        self.held[address.text] = address
        return list(self.member.columns.acquire(address))

    def broadcast(self) -> None:
        task = asyncio.ensure_future(self._broadcast())
        self.tasks.add(task)

    async def _broadcast(self) -> None:
        request = json.loads((DIRECTORY / "request.json").read_text())
        answers = await self.member.broadcast(
            request["command"], request.get("arguments"), keep=request.get("keep")
        )
        path = DIRECTORY / f"{self.member.index}.json"
        path.with_suffix(".tmp").write_bytes(msgspec.json.encode(answers))
        path.with_suffix(".tmp").rename(path)


async def main() -> None:
    echo = Echo(FleetMember(Handover.read(int(sys.argv[1]))))
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, echo.broadcast)
    await echo.member.open()
    echo.member.serving()
    await echo.ended.wait()


asyncio.run(main())
