"""All workers of this proxy, their connections and their health."""

from __future__ import annotations

import asyncio
import logging

from proxy.config.settings import ServerSection, Settings
from proxy.placement.table import POLICIES
from proxy.upstream.pool import ConnectionPool
from proxy.workers.health import HealthMonitor
from proxy.workers.pool import WorkerPool
from proxy.workers.worker import Role, Worker

_logger = logging.getLogger("proxy.workers")


class Registry:
    """Owns the workers from `start` to `close`; must be made inside the event loop.

    Attributes:
        context, generation: the workers of each role.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.context = self._pool(Role.CONTEXT, settings.context_servers)
        self.generation = self._pool(Role.GENERATION, settings.generation_servers)
        self._health = HealthMonitor(
            self.workers, interval=settings.proxy.probe_interval, timeout=settings.proxy.probe_timeout
        )
        self._start_timer: asyncio.TimerHandle | None = None

    def _pool(self, role: Role, section: ServerSection) -> WorkerPool:
        proxy = self._settings.proxy
        workers = [
            Worker(
                address,
                role,
                ConnectionPool(
                    address,
                    connect_timeout=proxy.timeout_connect,
                    max_connections=proxy.max_connections_per_worker,
                ),
            )
            for address in section.urls
        ]
        return WorkerPool(role, workers, POLICIES[section.router.type]())

    @property
    def workers(self) -> list[Worker]:
        """The workers of both roles."""
        return [*self.context.workers, *self.generation.workers]

    @property
    def ready(self) -> bool:
        """Whether a request could be served now: a worker of each role, and not one worker for both legs."""
        context = {worker.address for worker in self.context.available()}
        generation = {worker.address for worker in self.generation.available()}
        return bool(context and generation) and len(context | generation) > 1

    @property
    def version(self) -> str | None:
        """The workers' common version, or None when it is unknown or they differ."""
        versions = {worker.version for worker in self.workers if worker.ready}
        return versions.pop() if len(versions) == 1 else None

    def start(self) -> None:
        """Begin to probe the workers. Not being ready in time is logged and never ends the program."""
        self._health.start()
        timeout = self._settings.server_start_timeout
        if timeout:
            loop = asyncio.get_running_loop()
            self._start_timer = loop.call_later(timeout, self._check_started)

    def _check_started(self) -> None:
        missing = [worker for worker in self.workers if not worker.ready]
        if not self.ready:
            names = (
                ", ".join(f"{worker.role} {worker.address.text}" for worker in missing)
                or "none are configured"
            )
            _logger.error(
                "not ready after %g s, still trying; workers missing: %s",
                self._settings.server_start_timeout,
                names,
            )

    async def close(self) -> None:
        """Stop probing and close all connections."""
        if self._start_timer is not None:
            self._start_timer.cancel()
        await self._health.close()
        for worker in self.workers:
            await worker.pool.close()
