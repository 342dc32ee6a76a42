"""One worker as the proxy sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from proxy.workers.states import Event, State, after

if TYPE_CHECKING:
    from proxy.config.listed_worker import ListedWorker
    from proxy.workers.instance import Instance
    from proxy.workers.outcome import LegOutcome
    from proxy.workers.pool import WorkerPool

DOMAIN_LABEL = "domain"


class Role(StrEnum):
    """What a worker does for a request; `trtllm-serve` workers can do either."""

    CONTEXT = "context"
    GENERATION = "generation"


class Worker:
    """A worker in one role, for one model.

    Args:
        listed: its entry of the worker list.
        instance: the process.
        owner: its pool.

    Attributes:
        pool: the connections to it.
        state: see `proxy.workers.states`.
        in_flight: legs of this process that are running on it, kept by `Reservation` alone.
        placed: how many legs it has got from this process.
        ended: how many of them have ended, by outcome.
        labels, domain: from the worker list; `domain` is the label of that name or None.
        column, seed: the instance's, at hand for placement.
    """

    __slots__ = (
        "_heads",
        "address",
        "column",
        "domain",
        "ended",
        "health",
        "in_flight",
        "instance",
        "labels",
        "model",
        "owner",
        "placed",
        "pool",
        "role",
        "seed",
        "state",
    )

    def __init__(self, listed: ListedWorker, instance: Instance, owner: WorkerPool) -> None:
        self.address = listed.address
        self.role = Role(listed.role)
        self.model = listed.model
        self.instance = instance
        self.owner = owner
        self.health = instance.health
        self.pool = instance.connections
        self.column = instance.column.number
        self.seed = instance.seed
        self.state = State.STARTING
        self.in_flight = 0
        self.placed = 0
        self.ended: Counter[LegOutcome] = Counter()
        self.labels: Mapping[str, str] = listed.labels
        self.domain = listed.labels.get(DOMAIN_LABEL)
        self._heads: dict[bytes, bytes] = {}

    @property
    def ready(self) -> bool:
        """Answers probes and legs."""
        return self.state is State.READY

    @property
    def leaving(self) -> bool:
        """Draining or gone: gets no legs whatever its health."""
        return self.state is State.DRAINING or self.state is State.GONE

    @property
    def version(self) -> str | None:
        """As the worker told, or None."""
        return self.instance.version

    def advance(self, event: Event) -> None:
        """Something has happened to the worker."""
        self.state = after(self.state, event)

    def catch_up(self) -> None:
        """Take over the instance's condition after the worker has been listed (again)."""
        if self.health.condition is State.READY:
            self.advance(Event.ANSWERS)
        elif self.health.condition is State.EJECTED:
            self.advance(Event.FAILS)

    def takes_legs(self, now: float) -> bool:
        """Whether a leg may be placed on it."""
        return not self.leaving and self.health.takes_legs(now)

    def request_head(self, target: bytes) -> bytes:
        """The beginning of a POST's head, up to the headers that differ between requests.

        Args:
            target: path and query string.
        """
        head = self._heads.get(target)
        if head is None:
            head = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n" % (
                target,
                self.address.authority,
            )
            if b"?" not in target:  # queries are the clients' and would fill the table
                self._heads[target] = head
        return head
