"""Workers that are not listed any more, but whose successors have not answered yet. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from proxy.config.address import WorkerAddress
from proxy.config.listed_worker import ListedWorker
from proxy.workers.worker import Role, Worker

SECONDS = 5.0
"""The longest reprieve: a first probe takes less, a model's loading does not count."""
LOOK_SECONDS = 0.1
"""So often it is looked whether the successors have answered."""

WorkerKey = tuple[str | None, Role, WorkerAddress]


class Reprieve:
    """When all workers of a pool are exchanged at once, the old ones go on until the first new one is ready, so that no
    request meets an empty pool.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[WorkerKey, float] = {}

    def spared(
        self,
        gone: Iterable[WorkerKey],
        wanted: Mapping[WorkerKey, ListedWorker],
        known: Mapping[WorkerKey, Worker],
    ) -> frozenset[WorkerKey]:
        """Who of those that have gone from the lists goes on for now; to be asked again after `LOOK_SECONDS`.

        Args:
            gone: known workers that are not listed any more.
            wanted: the lists.
            known: the workers as they are.
        """
        listed = {key for key, each in wanted.items() if not each.draining}
        served = {key[:2] for key in listed if key in known and known[key].ready}
        coming = {key[:2] for key in listed} - served
        now = self._clock()
        self._until = {
            key: self._until.get(key, now + SECONDS) for key in gone if key[:2] in coming and known[key].ready
        }
        return frozenset(key for key, until in self._until.items() if now < until)
