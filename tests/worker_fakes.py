"""Workers without sockets and a clock that stands still."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from proxy.config.address import parse_worker_address
from proxy.config.listed_worker import ListedWorker
from proxy.config.settings import RouterSettings
from proxy.placement.columns import LocalColumns
from proxy.placement.load_table import LoadTable
from proxy.placement.table import make_policy
from proxy.workers.health import Health
from proxy.workers.instance import Instance
from proxy.workers.pool import WorkerPool
from proxy.workers.worker import Role, Worker


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Pool:
    """A `WorkerPool` of workers that have answered a probe, and their `Instance`s.

    Several make a fleet if they get tables over one memory and clocks of their own.
    """

    def __init__(
        self,
        size: int,
        policy: str = "load_balancing",
        *,
        clock: Clock | None = None,
        table: LoadTable | None = None,
        labels: Mapping[int, Mapping[str, str]] | None = None,
        role: Role = Role.CONTEXT,
        slow_start: float = 0.0,
        first_port: int = 1,
        **options: Any,
    ) -> None:
        self.clock = clock or Clock()
        self.table = table or LoadTable(columns=size + 16)
        self.columns = LocalColumns(self.table.columns)
        self.pool = WorkerPool(
            role,
            None,
            make_policy(RouterSettings(cast(Any, policy))),
            self.table,
            clock=self.clock,
            **options,
        )
        self.slow_start = slow_start
        self.instances: list[Instance] = []
        for index in range(size):
            self.add(first_port + index, (labels or {}).get(index, {}))

    def add(self, port: int, labels: Mapping[str, str] | None = None, *, answers: bool = True) -> Worker:
        address = parse_worker_address(f"worker:{port}")

        def make_health(notify):
            return Health(
                clock=self.clock,
                eject_after=3,
                eject_seconds=2.0,
                slow_start_seconds=self.slow_start,
                notify=notify,
            )

        instance = Instance(address, cast(Any, None), self.columns.acquire(address), make_health)
        worker = Worker(ListedWorker(address, str(self.pool.role), labels=labels or {}), instance, self.pool)
        instance.workers.append(worker)
        self.instances.append(instance)
        self.pool.workers.append(worker)
        self.pool.invalidate()
        if answers:
            instance.health.probe_answered(0.001)
        return worker

    @property
    def workers(self) -> list[Worker]:
        return self.pool.workers

    def loads(self) -> list[int]:
        return [worker.in_flight for worker in self.pool.workers]
