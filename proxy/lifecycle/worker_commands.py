"""What can be asked of this process about its workers: commands that the whole fleet carries out (`proxy.fleet`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from proxy.config.address import WorkerAddress
from proxy.fleet.worker_lists import WORKER
from proxy.workers.discovery.operator import Statement
from proxy.workers.states import State
from proxy.workers.worker import Role

if TYPE_CHECKING:
    from proxy.lifecycle.service import Service

WORKER_STATES = "worker_states"


class WorkerStatus(msgspec.Struct, frozen=True):
    """One worker in one role, as one process sees it.

    Attributes:
        in_flight: legs of this process.
        placed: legs since the process knows the worker.
        version: as the worker tells, or None.
    """

    address: WorkerAddress
    role: Role
    model: str | None
    state: State
    in_flight: int
    placed: int
    version: str | None
    labels: dict[str, str]


def register_worker_commands(service: Service) -> None:
    """Add the commands to those of the process."""
    commands = _Commands(service)
    service.member.commands.register(WORKER, commands.state)
    service.member.commands.register(WORKER_STATES, commands.states)


class _Commands:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def state(self, arguments: Any) -> None:
        self._service.registry.state(msgspec.convert(arguments, Statement))

    async def states(self, _arguments: Any) -> Any:
        return msgspec.to_builtins(
            [
                WorkerStatus(
                    worker.address,
                    worker.role,
                    worker.model,
                    worker.state,
                    worker.in_flight,
                    worker.placed,
                    worker.version,
                    dict(worker.labels),
                )
                for worker in self._service.registry.workers
            ]
        )
