"""Several simulated workers together, in the running event loop or in a thread of their own."""

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvloop

from proxy.sim.handover import KvReach
from proxy.sim.kv import DEFAULT_SECONDS, KvRegistry
from proxy.sim.settings import WorkerSettings
from proxy.sim.worker import Role, SimWorker

START_SECONDS = 30.0


class SimCluster:
    """Context and generation workers on real sockets, as an asynchronous context manager.

    Ports: ``base_port`` and the following ones, context workers first; 0 takes free ports. With
    ``unix_directory`` the workers listen on ``<directory>/<name>.sock`` instead. Further keyword arguments are
    those of `proxy.sim.settings.WorkerSettings`. Workers are named ``context-0``, ``generation-0`` and so on.
    """

    def __init__(
        self,
        context: int = 2,
        generation: int = 2,
        base_port: int = 0,
        *,
        host: str = "127.0.0.1",
        unix_directory: str | Path | None = None,
        kv_seconds: float = DEFAULT_SECONDS,
        settings: WorkerSettings | None = None,
        name_prefix: str = "",
        **overrides: Any,
    ) -> None:
        self.settings = replace(settings or WorkerSettings(), **overrides)
        self.kv = KvRegistry(kv_seconds)
        self._reach = KvReach(self.kv)
        self._by_name: dict[str, SimWorker] = {}
        self.context_workers = self._make("context", context, base_port, host, unix_directory, name_prefix)
        first = base_port + context if base_port else 0
        self.generation_workers = self._make(
            "generation", generation, first, host, unix_directory, name_prefix
        )

    def _make(
        self, role: Role, count: int, first_port: int, host: str, directory: str | Path | None, prefix: str
    ) -> list[SimWorker]:
        made = []
        for index in range(count):
            name = f"{prefix}{role}-{index}"
            worker = SimWorker(
                name,
                role,
                self.settings,
                self.kv,
                reach=self._reach,
                siblings=self._by_name,
                host=host,
                port=first_port + index if first_port else 0,
                path=None if directory is None else str(Path(directory) / f"{name}.sock"),
            )
            self._by_name[name] = worker
            made.append(worker)
        return made

    @property
    def workers(self) -> list[SimWorker]:
        """All workers, context workers first."""
        return [*self.context_workers, *self.generation_workers]

    @property
    def context_urls(self) -> list[str]:
        """``host:port`` (or ``unix:/path``) of the context workers."""
        return [worker.address for worker in self.context_workers]

    @property
    def generation_urls(self) -> list[str]:
        """``host:port`` (or ``unix:/path``) of the generation workers."""
        return [worker.address for worker in self.generation_workers]

    def worker(self, name: str) -> SimWorker:
        """The worker of this name or address."""
        for worker in self.workers:
            if name in (worker.name, worker.address):
                return worker
        raise KeyError(name)

    def stats(self) -> dict[str, dict[str, Any]]:
        """Every worker's counts, by name."""
        return {worker.name: worker.stats() for worker in self.workers}

    async def start(self) -> Self:
        """Start all workers; none is left running when one cannot start."""
        try:
            for worker in self.workers:
                await worker.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def stop(self) -> None:
        """Stop all workers and end what they were doing."""
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        await self._reach.aclose()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class ThreadedSimCluster:
    """A `SimCluster` with an event loop in a thread of its own, as a plain context manager.

    The same constructor arguments; reading counts and switching faults is safe from other threads, for anything else
    there is `call`.
    """

    def __init__(self, context: int = 2, generation: int = 2, base_port: int = 0, **options: Any) -> None:
        self.cluster = SimCluster(context, generation, base_port, **options)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="simulated-workers", daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the workers' loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    @property
    def context_urls(self) -> list[str]:
        """``host:port`` of the context workers."""
        return self.cluster.context_urls

    @property
    def generation_urls(self) -> list[str]:
        """``host:port`` of the generation workers."""
        return self.cluster.generation_urls

    @property
    def workers(self) -> list[SimWorker]:
        """All workers, context workers first."""
        return self.cluster.workers

    @property
    def context_workers(self) -> list[SimWorker]:
        """The context workers."""
        return self.cluster.context_workers

    @property
    def generation_workers(self) -> list[SimWorker]:
        """The generation workers."""
        return self.cluster.generation_workers

    @property
    def kv(self) -> KvRegistry:
        """All hand-offs."""
        return self.cluster.kv

    def worker(self, name: str) -> SimWorker:
        """The worker of this name or address."""
        return self.cluster.worker(name)

    def stats(self) -> dict[str, dict[str, Any]]:
        """Every worker's counts, by name."""
        return self.cluster.stats()

    def start(self) -> Self:
        """Start the thread and the workers."""
        self._thread.start()
        try:
            self.call(self.cluster.start())
        except BaseException:
            self._end_thread()
            raise
        return self

    def stop(self) -> None:
        """Stop the workers and the thread; does nothing the second time."""
        if self._thread.is_alive():
            self.call(self.cluster.stop())
            self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
