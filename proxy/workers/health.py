"""What is known of one worker's health, from probes and from real traffic. Pure; the clock is given.

A worker that is listed in both roles is one process and has one health. Every negative mark ends by itself: a busy
mark after its lease, an open breaker after its time, failed probes with the next one that succeeds.

| What | Consequence |
|---|---|
| `eject_after` failed legs in a row, or over half of the last 20 | breaker opens |
| over 90 % of the last 20 legs 4xx, other workers under 10 % (see `peers`) | breaker opens |
| 429, 503 | busy for a second, or for Retry-After up to a cap |
| `eject_after` failed probes in a row | unreachable until one succeeds |
| a probe without an answer in time | nothing, if legs were answered in the last 10 s |
| a probe that succeeds after one that failed | a trial leg at once: it may be a new process |
| a probe that finds the model being loaded | starting |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from proxy.workers.breaker import Breaker
from proxy.workers.outcome import FAILURES, LegOutcome
from proxy.workers.recent import RecentOutcomes
from proxy.workers.states import Event, State

BUSY_SECONDS = 1.0
LONGEST_BUSY_SECONDS = 5.0
"""What a worker's Retry-After can claim at most."""
TRAFFIC_SECONDS = 10.0
"""A worker that answered a leg this recently is not dead because it did not answer a probe in time."""
# A worker that comes back begins with this share of the others' load.
_FIRST_SHARE = 0.1

CLIENT_ERRORS = "client_errors"
FAILURE_SHARE = "failure_share"
CANARY = "canary"
PROBE = "probe"
# The worker answers now, which is all that was wrong.
_CURED_BY_AN_ANSWER = frozenset({LegOutcome.CONNECT_FAILED, LegOutcome.RESET, LegOutcome.TIMEOUT})

Notify = Callable[[Event | None], None]


class Health:
    """See the module's docstring.

    Args:
        clock: seconds, monotonic.
        eject_after: failures in a row.
        eject_seconds: how long the breaker stays open the first time.
        slow_start_seconds: how long a worker that comes back gets less than its share; 0 = not at all.
        notify: called after each change of what the worker can get, with the event for its state if there is one.

    Attributes:
        condition: `starting`, `ready` or `ejected`.
        breaker: fed by legs (and the canary).
        recent: the last outcomes.
        unreachable: probes fail.
        busy_until: end of the busy mark.
        returned_at: when the worker came back, while it gets less than its share; else None.
        last_answer: when a leg was answered last.
        probe_seconds: how long the last successful probe took.
        ejections: how often, by reason.
        busy_marks: how often it was busy.
    """

    __slots__ = (
        "_answered",
        "_canary_failures",
        "_clock",
        "_eject_after",
        "_notify",
        "_probe_failures",
        "_slow_start",
        "_was_ready",
        "breaker",
        "busy_marks",
        "busy_until",
        "condition",
        "ejections",
        "last_answer",
        "probe_seconds",
        "recent",
        "returned_at",
        "unreachable",
    )

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        eject_after: int,
        eject_seconds: float,
        slow_start_seconds: float,
        notify: Notify,
    ) -> None:
        self._clock = clock
        self._eject_after = eject_after
        self._slow_start = slow_start_seconds
        self._notify = notify
        self._answered = False
        self._was_ready = False
        self._probe_failures = 0
        self._canary_failures = 0
        self.condition = State.STARTING
        self.breaker = Breaker(clock=clock, threshold=eject_after, seconds=eject_seconds)
        self.recent = RecentOutcomes()
        self.unreachable = False
        self.busy_until = 0.0
        self.returned_at: float | None = None
        self.last_answer = float("-inf")
        self.probe_seconds = 0.0
        self.ejections: Counter[str] = Counter()
        self.busy_marks = 0

    # What placement asks

    def takes_legs(self, now: float) -> bool:
        """Whether a leg may be placed: ready, or due for a trial, and not busy."""
        if now < self.busy_until:
            return False
        if self.condition is State.EJECTED:
            return not self.unreachable and self.breaker.wants_trial
        return self.condition is State.READY

    def changes_at(self, now: float) -> float:
        """When the answer of `takes_legs` or `share` changes by itself next; infinity if it does not."""
        times = [self.busy_until]
        if not self.breaker.closed:
            times.append(self.breaker.open_until)
        if self.returned_at is not None:
            times.append(self.returned_at + self._slow_start)
        return min((time for time in times if time > now), default=float("inf"))

    def share(self, now: float) -> float:
        """The share of the others' mean load that the worker may have, 0.1 to 1."""
        if self.returned_at is None:
            return 1.0
        passed = now - self.returned_at
        if passed >= self._slow_start:
            self.returned_at = None
            return 1.0
        return max(_FIRST_SHARE, passed / self._slow_start)

    # What legs tell

    def leg_answers(self, *, trial: bool) -> None:
        """A leg's answer has begun with a 2xx: a trial need not wait for the end of a long stream."""
        self.last_answer = self._clock()
        if trial:
            self._passed()

    def leg_ended(
        self,
        outcome: LegOutcome,
        *,
        retry_after: float | None = None,
        trial: bool = False,
        last_resort: bool = False,
    ) -> None:
        """A leg has ended.

        Args:
            outcome: how.
            retry_after: seconds, as a busy worker asked.
            trial: it was the trial of a half-open breaker.
            last_resort: all workers were ejected when it was placed: only its success says something new.
        """
        if outcome is LegOutcome.OK:
            self.last_answer = self._clock()
            self.recent.add(outcome)
            self.breaker.succeed()
            if trial or last_resort:
                self._passed()
        elif outcome in FAILURES:
            self._leg_failed(outcome, trial=trial)
        elif outcome is LegOutcome.CLIENT_ERROR:
            self.last_answer = self._clock()
            self.recent.add(outcome)
            if trial:
                self._trial_client_error()
        else:
            if outcome is LegOutcome.BUSY:
                self._be_busy(retry_after)
            if trial:
                self.breaker.end_trial()
            if trial or outcome is LegOutcome.BUSY:
                self._notify(None)

    def begin_trial(self) -> None:
        """A trial leg has been placed; one of the methods above must follow."""
        self.breaker.begin_trial()
        self._notify(None)

    def eject(self, reason: str) -> None:
        """Open the breaker for a reason that is found elsewhere."""
        self.breaker.open(reason)
        self._ejected(reason)

    def _leg_failed(self, outcome: LegOutcome, *, trial: bool) -> None:
        self.recent.add(outcome)
        if self.breaker.fail(outcome, trial=trial):
            self._ejected(outcome)
        elif self.breaker.closed and self.recent.mostly_failures:
            self.eject(FAILURE_SHARE)

    def _trial_client_error(self) -> None:
        reason = self.breaker.reason
        if reason == CLIENT_ERRORS:
            self.breaker.open(reason)
            self._ejected(reason)
        elif reason in _CURED_BY_AN_ANSWER:
            self._passed()
        else:
            self.breaker.end_trial()
            self._notify(None)

    def _passed(self) -> None:
        self.breaker.succeed(trial=True)
        self._probe_failures = 0
        self.unreachable = False
        self._settle()

    def _be_busy(self, retry_after: float | None) -> None:
        now = self._clock()
        self.last_answer = now
        lease = BUSY_SECONDS if retry_after is None else min(retry_after, LONGEST_BUSY_SECONDS)
        self.busy_until = max(self.busy_until, now + lease)
        self.busy_marks += 1

    def _ejected(self, reason: str) -> None:
        self.ejections[reason] += 1
        self.recent.clear()
        if self.condition is State.EJECTED:
            # A trial has failed: the condition stays, but the next trial comes later.
            self._notify(None)
        self._settle()

    # What probes tell

    def probe_answered(self, seconds: float) -> None:
        """A probe found the worker healthy, after `seconds`."""
        self.probe_seconds = seconds
        back = self._probe_failures > 0 or not self._answered
        self._probe_failures = 0
        self._answered = True
        self.unreachable = False
        # A probe proves that connections can be made. Whatever else was wrong, another process may have come.
        if not self.breaker.closed and (back or self.breaker.reason == LegOutcome.CONNECT_FAILED):
            self.breaker.allow_trial()
            self._notify(None)
        self._settle()

    def probe_found_loading(self) -> None:
        """A probe found that the worker loads its model."""
        self._probe_failures = 0
        self._answered = False
        self.unreachable = False
        self._settle()

    def probe_failed(self, *, timed_out: bool) -> None:
        """A probe failed: no answer in time, no connection, or an answer that says no."""
        if timed_out and self._clock() - self.last_answer < TRAFFIC_SECONDS:
            return
        self._probe_failures += 1
        if self._answered and not self.unreachable and self._probe_failures >= self._eject_after:
            self.unreachable = True
            self._ejected(PROBE)

    @property
    def suspicious(self) -> bool:
        """Whether probes should come without delay, and over new connections."""
        return self._probe_failures > 0 or self.condition is not State.READY

    def forgive(self) -> None:
        """Forget everything that legs, probes and the canary have found against the worker."""
        self._probe_failures = self._canary_failures = 0
        self.busy_until = 0.0
        self.unreachable = False
        self.breaker.close()
        self.recent.clear()
        self._settle()
        self.returned_at = None
        self._notify(None)

    # What the canary tells

    def canary_passed(self) -> None:
        """A request of the canary's went through this worker."""
        self._canary_failures = 0

    def canary_failed(self) -> None:
        """A request of the canary's failed, by this worker's fault or its partner's; innocent ones pass the next."""
        self._canary_failures += 1
        if self._canary_failures >= self._eject_after and self.breaker.closed:
            self._canary_failures = 0
            self.eject(CANARY)

    def _settle(self) -> None:
        """Find the condition again and tell if it changed."""
        if not self._answered:
            condition, event = State.STARTING, Event.LOADS
        elif self.unreachable or not self.breaker.closed:
            condition, event = State.EJECTED, Event.FAILS
        else:
            condition, event = State.READY, Event.ANSWERS
        if condition is self.condition:
            return
        self.condition = condition
        if condition is State.READY:
            self.returned_at = self._clock() if self._was_ready and self._slow_start else None
            self._was_ready = True
        self._notify(event)
