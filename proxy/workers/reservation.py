"""One leg's place on a worker."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from proxy.workers.outcome import LegOutcome, outcome_of_error

if TYPE_CHECKING:
    from proxy.workers.pool import WorkerPool
    from proxy.workers.worker import Worker


class Reservation:
    """Counted from its making to the end of the `with` block, whatever happens in it.

    How the leg ended should be reported once. If nobody did, an exception that leaves the block is taken for the
    outcome; a block that ends without one says nothing about the worker.
    """

    __slots__ = ("_handed_on", "_last_resort", "_open", "_pool", "_reported", "_tokens", "_trial", "worker")

    def __init__(
        self, pool: WorkerPool, worker: Worker, tokens: int, *, trial: bool = False, last_resort: bool = False
    ) -> None:
        self.worker = worker
        self._pool = pool
        self._tokens = tokens
        self._trial = trial
        self._last_resort = last_resort
        self._reported = False
        self._handed_on = False
        self._open = True
        worker.in_flight += 1
        worker.placed += 1
        pool.table.add(worker.column, 1, tokens)

    def __enter__(self) -> Worker:
        return self.worker

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handed_on:
            self._handed_on = False
            return
        if not self._reported:
            self.report(LegOutcome.CANCELLED if error is None else outcome_of_error(error))
        self.release()

    def hand_on(self) -> None:
        """The block that is being left does not end the leg: whoever gets the reservation enters it again, at once."""
        self._handed_on = True

    def answers(self) -> None:
        """The worker's answer has begun with a 2xx. Optional; `report` follows at its end."""
        if not self._reported:
            self.worker.health.leg_answers(trial=self._trial or self._last_resort)
            self._trial = self._last_resort = False

    def report(self, outcome: LegOutcome, *, retry_after: float | None = None) -> None:
        """Say how the leg ended; only the first report counts.

        Args:
            outcome: how.
            retry_after: seconds that a busy worker asked for.
        """
        if self._reported:
            return
        self._reported = True
        worker = self.worker
        worker.ended[outcome] += 1
        worker.health.leg_ended(
            outcome, retry_after=retry_after, trial=self._trial, last_resort=self._last_resort
        )
        if outcome is LegOutcome.CLIENT_ERROR:
            self._pool.note_client_error(worker)

    def release(self) -> None:
        """Give the place back; further calls do nothing."""
        if self._open:
            self._open = False
            worker = self.worker
            worker.in_flight -= 1
            self._pool.table.add(worker.column, -1, -self._tokens)
            if not worker.in_flight and worker.leaving:
                self._pool.emptied(worker)
