"""One process behind one address. It may be a worker in two roles; connections, health and load are shared."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from proxy.config.address import WorkerAddress
from proxy.placement.candidates import address_seed
from proxy.upstream.pool import ConnectionPool
from proxy.workers.capabilities import Capabilities
from proxy.workers.health import Health
from proxy.workers.states import Event, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.placement.columns import Column
    from proxy.workers.worker import Worker

_logger = logging.getLogger("proxy.workers")


class Instance:
    """See the module's docstring.

    Args:
        address: where it listens.
        connections: to it.
        column: its column of the load table.
        make_health: makes its health, given whom to notify.
        capabilities: what it accepts on the wire.

    Attributes:
        seed: stands for it in hashes.
        workers: its roles.
        version, models, max_batch_size: as it told when it became healthy last, or None and empty.
    """

    def __init__(
        self,
        address: WorkerAddress,
        connections: ConnectionPool,
        column: Column,
        make_health: Callable[[Callable[[Event | None], None]], Health],
        capabilities: Capabilities | None = None,
    ) -> None:
        self.address = address
        self.connections = connections
        self.column = column
        self.seed = address_seed(address)
        self.health = make_health(self._health_changed)
        self.capabilities = capabilities or Capabilities()
        self.workers: list[Worker] = []
        self.version: str | None = None
        self.models: tuple[str, ...] = ()
        self.max_batch_size: int | None = None

    def _health_changed(self, event: Event | None) -> None:
        if event is not None:
            self._log(event)
        for worker in self.workers:
            if event is not None:
                worker.advance(event)
            worker.owner.invalidate()

    def _log(self, event: Event) -> None:
        roles = " and ".join(str(worker.role) for worker in self.workers)
        health = self.health
        if event is Event.ANSWERS:
            _logger.info("%s worker %s is ready (version %s)", roles, self.address.text, self.version)
        elif event is Event.LOADS:
            _logger.warning("%s worker %s is loading its model again", roles, self.address.text)
        elif health.condition is State.EJECTED:
            reason = "its health probes fail" if health.unreachable else health.breaker.reason
            _logger.warning("%s worker %s is ejected (%s)", roles, self.address.text, reason)
