"""The workers as all processes of the fleet see them."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.endpoints.admin.fleet import ask
from proxy.fleet.member import Member
from proxy.lifecycle.worker_commands import WORKER_STATES, WorkerStatus
from proxy.placement.candidates import address_seed
from proxy.workers.states import State

_TELLING = (State.DRAINING, State.EJECTED, State.STARTING, State.READY)
"""Where processes differ the first of these is told: what an operator waits for or has to look after."""


async def fleet_workers(member: Member) -> list[WorkerStatus]:
    """Every worker in every role once, its legs in all processes added up.

    Raises:
        FleetIncomplete: a process did not tell.
    """
    found: dict[tuple[str, str, str | None], WorkerStatus] = {}
    for answer in await ask(member, WORKER_STATES):
        for status in msgspec.convert(answer.result, list[WorkerStatus]):
            key = status.address.text, status.role, status.model
            known = found.get(key)
            found[key] = status if known is None else _together(known, status)
    return list(found.values())


def _together(one: WorkerStatus, other: WorkerStatus) -> WorkerStatus:
    return msgspec.structs.replace(
        one,
        state=min(one.state, other.state, key=_TELLING.index),
        in_flight=one.in_flight + other.in_flight,
        placed=one.placed + other.placed,
        version=one.version or other.version,
    )


def worker_id(status: WorkerStatus) -> str:
    """What names a worker's process in paths, for those to whom urls in paths are too much."""
    return f"{address_seed(status.address):016x}"


def shown(status: WorkerStatus) -> dict[str, Any]:
    """A worker for an answer; `url` is what an HTTP client takes, but for Unix sockets."""
    address = status.address
    return {
        "id": worker_id(status),
        "url": address.base_url if address.unix_path is None else address.text,
        "role": status.role,
        "model": status.model,
        "state": status.state,
        "in_flight": status.in_flight,
        "placed": status.placed,
        "version": status.version,
        "labels": status.labels,
    }
