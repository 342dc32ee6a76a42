"""What an operator says of one worker, told to all processes."""

from __future__ import annotations

import msgspec

from proxy.endpoints.admin.fleet import ask
from proxy.fleet.member import Member
from proxy.fleet.worker_lists import WORKER
from proxy.workers.discovery.operator import Statement


async def state(member: Member, statement: Statement) -> None:
    """Have every process take it over, those that start later included.

    Raises:
        FleetIncomplete: not every process has; it stands for those that start.
    """
    address = statement.address.text
    await ask(
        member,
        WORKER,
        msgspec.to_builtins(statement),
        keep=f"{WORKER} {address}",
        addresses=[address] if statement.listed else (),
    )
