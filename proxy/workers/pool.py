"""The workers of one role and model, and the reservation of one for a leg."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from proxy.config.address import WorkerAddress
from proxy.config.scalars import PerWorker
from proxy.errors import NotReady, WorkersBusy
from proxy.placement.bound import load_limit
from proxy.placement.candidates import Candidates
from proxy.placement.load_table import LoadTable
from proxy.placement.policy import NO_PLACEMENT, Placement, Policy
from proxy.workers.health import CLIENT_ERRORS
from proxy.workers.peers import refuses_alone
from proxy.workers.reservation import Reservation
from proxy.workers.states import State
from proxy.workers.worker import Role, Worker

# Bad clients must not get one worker after the other ejected.
_MOST_EJECTED_FOR_CLIENT_ERRORS = 1 / 3


class WorkerPool:
    """See the module's docstring.

    Args:
        role, model: what its workers have in common.
        policy: chooses among them; belongs to this pool alone.
        table: where the load is counted.
        clock: seconds, monotonic.
        fail_open: use ejected workers when there are no others.
        strict: never take a worker of another domain than asked for.
        per_worker: legs that a worker should have at most. The admission lets no more requests in than that makes
            for all workers together; here they are only kept apart. 0 = no limit, `auto` = what the worker tells.
        on_empty: told when the last leg of a worker that is leaving has ended.

    Attributes:
        workers: all that are not gone.
        last_resorts: legs that were placed although all workers were ejected.
    """

    def __init__(
        self,
        role: Role,
        model: str | None,
        policy: Policy,
        table: LoadTable,
        *,
        clock: Callable[[], float],
        fail_open: bool = True,
        strict: bool = False,
        per_worker: PerWorker = 0,
        on_empty: Callable[[Worker], None] = lambda _worker: None,
    ) -> None:
        self.role = role
        self.model = model
        self.policy = policy
        self.table = table
        self.workers: list[Worker] = []
        self.last_resorts = 0
        self.emptied = on_empty
        self._clock = clock
        self._fail_open = fail_open
        self._strict = strict
        self._per_worker = per_worker
        # What follows is valid until `_stale_at`.
        self._candidates = Candidates((), table)
        self._stale_at = -math.inf
        self._last_resort = False
        self._trials = False
        self._returning: list[Worker] = []

    def reserve(
        self,
        placement: Placement = NO_PLACEMENT,
        *,
        exclude: Collection[WorkerAddress] = (),
        avoid: Collection[WorkerAddress] = (),
        near: Worker | None = None,
    ) -> Reservation:
        """Choose an available worker and count a leg on it, in one step.

        Args:
            placement: what is known of the request.
            exclude: never these, above all the one that has the request's other leg: one worker never runs both (it
                can be listed in both roles).
            avoid: these only if there are no others: they have failed this request.
            near: prefer this worker's domain, as long as that is not overloaded.

        Raises:
            WorkersBusy: there are sound workers, but all of them are busy.
            NotReady: there is none.
        """
        now = self._clock()
        if now >= self._stale_at:
            self._refresh(now)
        candidates = self._candidates
        if exclude:
            candidates = candidates.without(exclude)
        if avoid:
            candidates = candidates.without(avoid).or_else(candidates)
        if self._per_worker and candidates.size > 1:
            candidates = self._below_limit(candidates)
        if self._returning and candidates.size > 1:
            candidates = self._without_full(candidates, now)
        if near is not None and near.domain is not None:
            candidates = self._in_domain(candidates, near.domain)
        if not candidates.size:
            raise self._refusal(exclude, now)
        worker = candidates.workers[self.policy.choose(candidates, placement)]
        if not (self._trials or self._last_resort):
            return Reservation(self, worker, placement.tokens)
        return self._reserve_doubtful(worker, placement)

    def available(self) -> list[Worker]:
        """The workers that may get a leg now; every policy chooses among these and no others."""
        now = self._clock()
        if now >= self._stale_at:
            self._refresh(now)
        return list(self._candidates.workers)

    @property
    def answering(self) -> list[Worker]:
        """The workers that answer their probes, whether or not they may get a leg this moment."""
        return [
            worker
            for worker in self.workers
            if worker.state in (State.READY, State.EJECTED) and not worker.health.unreachable
        ]

    def invalidate(self) -> None:
        """A worker has come, gone or changed."""
        self._stale_at = -math.inf

    def note_client_error(self, worker: Worker) -> None:
        """A leg was answered with a 4xx: eject the worker if it alone does that."""
        recent = worker.health.recent
        if not recent.mostly_client_errors or not worker.health.breaker.closed:
            return
        others = [other for other in self.workers if other is not worker]
        blamed = sum(
            not other.health.breaker.closed and other.health.breaker.reason == CLIENT_ERRORS
            for other in others
        )
        # Of two or three workers one may be ejected.
        most = max(1, int(len(self.workers) * _MOST_EJECTED_FOR_CLIENT_ERRORS))
        if blamed < most and refuses_alone(recent, (other.health.recent for other in others)):
            worker.health.eject(CLIENT_ERRORS)

    def _refresh(self, now: float) -> None:
        available = [worker for worker in self.workers if worker.takes_legs(now)]
        self._last_resort = False
        if not available and self._fail_open:
            available = self._least_bad()
            self._last_resort = bool(available)
        self._candidates = Candidates(available, self.table)
        self._trials = any(not worker.health.breaker.closed for worker in available)
        self._returning = [worker for worker in available if worker.health.share(now) < 1.0]
        self._stale_at = min((worker.health.changes_at(now) for worker in self.workers), default=math.inf)

    def _least_bad(self) -> list[Worker]:
        """When every worker is ejected: those that at least answer probes, else all. Busy ones are not ejected."""
        listed = [worker for worker in self.workers if not worker.leaving]
        if any(worker.state is State.READY for worker in listed):
            return []
        ejected = [worker for worker in listed if worker.state is State.EJECTED]
        return [worker for worker in ejected if not worker.health.unreachable] or ejected

    def _reserve_doubtful(self, worker: Worker, placement: Placement) -> Reservation:
        trial = not self._last_resort and not worker.health.breaker.closed
        self.last_resorts += self._last_resort
        reservation = Reservation(self, worker, placement.tokens, trial=trial, last_resort=self._last_resort)
        if trial:
            worker.health.begin_trial()
        return reservation

    def _without_full(self, candidates: Candidates, now: float) -> Candidates:
        """Leave out workers that have come back and have their share for now."""
        mean = int(candidates.legs().sum()) / candidates.size
        full = [
            worker.address
            for worker in self._returning
            if self.table.legs_of(worker.column) >= max(1.0, worker.health.share(now) * mean)
        ]
        return candidates.without(full).or_else(candidates)

    def _below_limit(self, candidates: Candidates) -> Candidates:
        """Leave out workers that have as many legs as they should; if all of them have, nobody is left out."""
        legs = candidates.legs().tolist()
        full = []
        for worker, running in zip(candidates.workers, legs, strict=True):
            limit = worker.instance.max_batch_size if self._per_worker == "auto" else self._per_worker
            if limit and running >= limit:
                full.append(worker.address)
        return candidates.without(full).or_else(candidates) if full else candidates

    def _in_domain(self, candidates: Candidates, domain: str) -> Candidates:
        near = candidates.in_domain(domain)
        if self._strict:
            return near or Candidates((), self.table)
        if near is None:
            return candidates
        limit = load_limit(int(candidates.legs().sum()), candidates.size)
        return near if int(near.legs().min()) < limit else candidates

    def _refusal(self, exclude: Collection[WorkerAddress], now: float) -> NotReady | WorkersBusy:
        waits = [
            worker.health.busy_until - now
            for worker in self.workers
            if worker.state is State.READY
            and worker.address not in exclude
            and worker.health.busy_until > now
        ]
        if waits:
            return WorkersBusy(f"all {self.role} workers are busy", retry_after=min(waits))
        return NotReady(f"no {self.role} worker is ready", code=f"no_{self.role}_worker")
