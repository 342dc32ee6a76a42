"""All workers of this proxy: who is listed, who may get legs, who is leaving."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from proxy.config.address import WorkerAddress
from proxy.config.discovery.entry import CONFIGURATION
from proxy.config.listed_worker import ListedWorker
from proxy.errors import NotFound
from proxy.placement.columns import ColumnAllocator, LocalColumns, TableFull
from proxy.placement.load_table import LoadTable
from proxy.placement.policy import Needs
from proxy.placement.table import make_policy
from proxy.upstream.access import WorkerAccess
from proxy.upstream.pool import ConnectionPool
from proxy.wire.versions import WorkerVersion
from proxy.workers.canary import Canary, CanaryMonitor
from proxy.workers.capabilities import PoolCapabilities, field_options
from proxy.workers.discovery.operator import Statement
from proxy.workers.health import Health, Notify
from proxy.workers.instance import Instance
from proxy.workers.lists import WorkerLists
from proxy.workers.monitor import HealthMonitor
from proxy.workers.pool import WorkerPool
from proxy.workers.reprieve import LOOK_SECONDS, Reprieve, WorkerKey
from proxy.workers.states import Event, State
from proxy.workers.worker import DOMAIN_LABEL, Role, Worker

if TYPE_CHECKING:
    from proxy.config.settings import Settings

_logger = logging.getLogger("proxy.workers")


class Registry:
    """Owns the workers from `start` to `close`; must be made inside the event loop.

    Args:
        settings: the configuration.
        table, columns: where load is counted; private to this process when None.
        clock: seconds, monotonic.

    Attributes:
        access: TLS and key for the workers.
        capabilities: what they accept on the wire.
        operator: what operators say of single workers.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        table: LoadTable | None = None,
        columns: ColumnAllocator | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._table = table if table is not None else LoadTable()
        self._columns = columns if columns is not None else LocalColumns(self._table.columns)
        self.access = WorkerAccess(settings.proxy)
        self._monitor = HealthMonitor(
            access=self.access,
            interval=settings.proxy.probe_interval,
            timeout=settings.proxy.probe_timeout,
            clock=clock,
        )
        version = settings.proxy.worker_version
        self.capabilities = PoolCapabilities(
            None if version == "auto" else WorkerVersion(version), field_options(settings.proxy)
        )
        self.capabilities.watch(lambda: self.instances)
        self._pools: dict[Role, dict[str | None, WorkerPool]] = {role: {} for role in Role}
        self._by_key: dict[WorkerKey, Worker] = {}
        self._instances: dict[WorkerAddress, Instance] = {}
        self._lists = WorkerLists([CONFIGURATION, *(entry.name for entry in settings.proxy.discovery)])
        self.operator = self._lists.operator
        self._wanted: dict[WorkerKey, ListedWorker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._start_timer: asyncio.TimerHandle | None = None
        self._canary: CanaryMonitor | None = None
        self._reprieve = Reprieve(clock)
        self._reprieve_timer: asyncio.TimerHandle | None = None
        for role in Role:
            self._pool_of(role, None)
        self.apply(settings.workers)

    # Who is there

    @property
    def workers(self) -> list[Worker]:
        """All workers that are not gone, context workers first."""
        return [worker for role in Role for worker in self.of_role(role)]

    @property
    def instances(self) -> list[Instance]:
        """The processes behind the workers; one in both roles appears once."""
        return list(self._instances.values())

    def of_role(self, role: Role) -> list[Worker]:
        """The workers of a role, all models together."""
        return [worker for pool in self._pools[role].values() for worker in pool.workers]

    @property
    def pools(self) -> list[WorkerPool]:
        """One per role and model."""
        return [pool for pools in self._pools.values() for pool in pools.values()]

    def pool(self, role: Role, model: str) -> WorkerPool:
        """The pool for a request's model. Workers that are listed without a model take any that has no pool of its
        own; where all workers serve one model any name will do.

        Raises:
            NotFound: several models are served and this is none of them.
        """
        pools = self._pools[role]
        pool = pools.get(model)
        if pool is not None and pool.workers:
            return pool
        common = pools[None]
        if common.workers:
            return common
        served = [pool for pool in pools.values() if pool.workers]
        if len(served) > 1:
            raise NotFound(f"the model {model!r} does not exist", code="model_not_found")
        return served[0] if served else common

    @property
    def needs(self) -> Needs:
        """What the policies of both roles need to know of a request."""
        needs = Needs.NOTHING
        for pool in self.pools:
            needs |= pool.policy.needs
        return needs

    @property
    def ready(self) -> bool:
        """Whether requests can be served: for one model a worker of each role answers its probes, and not one worker
        is to run both legs (one that generates is enough if prefill may be bypassed); and `minimal_instances`, if
        configured, are there. Ejection for failed legs does not count: it passes within seconds."""
        return self._enough and any(self._can_serve(model) for model in self._pools[Role.GENERATION])

    @property
    def asked_all(self) -> bool:
        """Whether each worker has been asked at least once how it is."""
        return self._monitor.asked_all

    @property
    def _enough(self) -> bool:
        minimal = self._settings.proxy.minimal_instances
        return minimal is None or minimal.reached(*map(self._answering, Role))

    def _answering(self, role: Role) -> int:
        return len({worker.address for pool in self._pools[role].values() for worker in pool.answering})

    def _can_serve(self, model: str | None) -> bool:
        context, generation = (
            {worker.address for worker in self._pools[role][model].answering}
            if model in self._pools[role]
            else set()
            for role in Role
        )
        proxy = self._settings.proxy
        if proxy.benchmark_gen_only or proxy.fallback_aggregated == "context_down":
            return bool(generation)
        return bool(context and generation) and len(context | generation) > 1

    @property
    def version(self) -> str | None:
        """The workers' common version, or None when it is unknown or they differ."""
        versions = {worker.version for worker in self.workers if worker.ready}
        return versions.pop() if len(versions) == 1 else None

    # Who is listed

    def apply(self, listed: Iterable[ListedWorker], *, source: str = CONFIGURATION) -> None:
        """Take over a whole worker list. Legs in flight are never touched: a worker that is not listed any more
        drains first, and one that comes back while it drains goes on with its counts. The last ones that answer
        go on until those who replace them do, for a few seconds at most.

        Args:
            listed: all workers that the source knows.
            source: which list this replaces.
        """
        self._lists.put(source, listed)
        self._take_over()

    def _take_over(self) -> None:
        self._wanted = wanted = self._lists.united()
        gone = [key for key in self._by_key if key not in wanted]
        spared = self._reprieve.spared(gone, wanted, self._by_key)
        self._look_again(bool(spared))
        # An address that changes its role or model keeps its process, connections and column: it is added first.
        stays = {address for _, _, address in wanted}
        moved = []
        for key in gone:
            worker = self._by_key[key]
            if worker.address in stays:
                moved.append(worker)
            elif key not in spared:
                self._delist(worker)
        for key, each in wanted.items():
            known = self._by_key.get(key)
            if known is None:
                known = self._add(key, each)
            elif known.labels != each.labels:
                known.labels = each.labels
                known.domain = each.labels.get(DOMAIN_LABEL)
                known.owner.invalidate()
            if known is not None and each.draining:
                self._delist(known)
            elif known is not None and known.leaving:
                self._relist(known)
        for worker in moved:
            self._delist(worker)

    def _look_again(self, soon: bool) -> None:
        if self._reprieve_timer is not None:
            self._reprieve_timer.cancel()
        loop = asyncio.get_running_loop()
        self._reprieve_timer = loop.call_later(LOOK_SECONDS, self._take_over) if soon else None

    def state(self, statement: Statement) -> None:
        """Take over what an operator says of a worker; legs in flight are never touched."""
        self._lists.state(statement)
        self._take_over()

    def _add(self, key: WorkerKey, listed: ListedWorker) -> Worker | None:
        model, role, address = key
        instance = self._instances.get(address)
        if instance is None:
            try:
                instance = self._make_instance(address)
            except TableFull as error:
                _logger.error("worker %s is ignored: %s", address.text, error)
                return None
        pool = self._pool_of(role, model)
        worker = self._by_key[key] = Worker(listed, instance, pool)
        instance.workers.append(worker)
        pool.workers.append(worker)
        pool.invalidate()
        worker.catch_up()
        return worker

    def _make_instance(self, address: WorkerAddress) -> Instance:
        proxy = self._settings.proxy

        def make_health(notify: Notify) -> Health:
            return Health(
                clock=self._clock,
                eject_after=proxy.eject_after,
                eject_seconds=proxy.eject_seconds,
                slow_start_seconds=proxy.slow_start_seconds,
                notify=notify,
            )

        column = self._columns.acquire(address)
        connections = ConnectionPool(
            address,
            connect_timeout=proxy.timeout_connect,
            max_connections=proxy.max_connections_per_worker,
            tls=self.access.tls_for(address),
        )
        instance = self._instances[address] = Instance(
            address, connections, column, make_health, self.capabilities.of_new_worker()
        )
        self._monitor.watch(instance)
        return instance

    def _pool_of(self, role: Role, model: str | None) -> WorkerPool:
        pool = self._pools[role].get(model)
        if pool is None:
            settings = self._settings
            section = settings.context_servers if role is Role.CONTEXT else settings.generation_servers
            pool = self._pools[role][model] = WorkerPool(
                role,
                model,
                make_policy(section.router),
                self._table,
                clock=self._clock,
                fail_open=settings.proxy.fail_open,
                strict=settings.proxy.topology_strict,
                per_worker=settings.proxy.max_inflight_per_context_worker
                if role is Role.CONTEXT
                else settings.proxy.max_inflight_per_generation_worker,
                on_empty=self._remove,
            )
        return pool

    def _delist(self, worker: Worker) -> None:
        if not worker.leaving:
            worker.advance(Event.DELISTED)
            worker.owner.invalidate()
            _logger.info("%s worker %s is draining", worker.role, worker.address.text)
        if not worker.in_flight:
            self._remove(worker)

    def _relist(self, worker: Worker) -> None:
        worker.advance(Event.RELISTED)
        worker.catch_up()
        worker.owner.invalidate()

    def _remove(self, worker: Worker) -> None:
        """The last leg of a worker that is leaving has ended."""
        key = (worker.model, worker.role, worker.address)
        # One that is listed as draining stays, so that it is not taken for a new worker.
        if worker.state is not State.DRAINING or key in self._wanted:
            return
        worker.advance(Event.EMPTY)
        del self._by_key[key]
        pool, instance = worker.owner, worker.instance
        pool.workers.remove(worker)
        pool.invalidate()
        if not pool.workers and pool.model is not None:
            del self._pools[pool.role][pool.model]
        instance.workers.remove(worker)
        if not instance.workers:
            self._close_instance(instance)

    def _close_instance(self, instance: Instance) -> None:
        del self._instances[instance.address]
        self.capabilities.changed()
        self._monitor.forget(instance)
        self._columns.release(instance.address)
        self._spawn(instance.connections.close())

    # Life

    def start(self, canary: Canary | None = None) -> None:
        """Begin to probe the workers. Not being ready in time is logged and never ends the
        program.

        Args:
            canary: sends the request of the end-to-end canary, which runs only if it is configured.
        """
        self._monitor.start()
        interval = self._settings.proxy.canary_interval
        if canary is not None and interval:
            self._canary = CanaryMonitor(interval=interval, canary=canary, groups=self._groups)
            self._canary.start()
        timeout = self._settings.server_start_timeout
        if timeout:
            loop = asyncio.get_running_loop()
            self._start_timer = loop.call_later(timeout, self._check_started)

    def _groups(self) -> list[tuple[Sequence[Worker], Sequence[Worker]]]:
        context = self._pools[Role.CONTEXT]
        return [
            (context[model].workers, pool.workers)
            for model, pool in self._pools[Role.GENERATION].items()
            if model in context
        ]

    def _check_started(self) -> None:
        if self.ready:
            return
        missing = [f"{worker.role} {worker.address.text}" for worker in self.workers if not worker.ready]
        _logger.error(
            "not ready after %g s, still trying; workers missing: %s",
            self._settings.server_start_timeout,
            ", ".join(missing) or "none are listed",
        )

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop probing and close all connections."""
        self._look_again(False)
        if self._start_timer is not None:
            self._start_timer.cancel()
        if self._canary is not None:
            await self._canary.close()
        await self._monitor.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for instance in self._instances.values():
            await instance.connections.close()
