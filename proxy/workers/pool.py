"""The workers of one role, and the reservation of one for a leg."""

from __future__ import annotations

from types import TracebackType

from proxy.config.address import WorkerAddress
from proxy.errors import NotReady
from proxy.placement.policy import Policy
from proxy.workers.worker import Role, Worker


class Reservation:
    """One leg's place on a worker: counted from its making to the end of the `with` block, whatever happens."""

    __slots__ = ("_open", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._open = True
        worker.in_flight += 1

    def __enter__(self) -> Worker:
        return self.worker

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the place back; further calls do nothing."""
        if self._open:
            self._open = False
            self.worker.in_flight -= 1


class WorkerPool:
    """All workers of one role, with the policy that chooses among them."""

    def __init__(self, role: Role, workers: list[Worker], policy: Policy) -> None:
        self.role = role
        self.workers = workers
        self._policy = policy

    def reserve(self, exclude: WorkerAddress | None = None) -> Reservation:
        """Choose a ready worker and count a leg on it, in one step.

        Args:
            exclude: the address that has the request's other leg; one worker never runs both (a worker can be
                listed in both roles).

        Raises:
            NotReady: no worker is ready.
        """
        available = self.available(exclude)
        if not available:
            raise NotReady(f"no {self.role} worker is ready", code=f"no_{self.role}_worker")
        return Reservation(self._policy.choose(available))

    def available(self, exclude: WorkerAddress | None = None) -> list[Worker]:
        """The workers that may get a leg now; every policy chooses among these and no others."""
        return [worker for worker in self.workers if worker.ready and worker.address != exclude]
