import pytest
from worker_fakes import Clock

from proxy.workers.breaker import BreakerState
from proxy.workers.health import CANARY, CLIENT_ERRORS, FAILURE_SHARE, PROBE, Health
from proxy.workers.outcome import FAILURES, LegOutcome
from proxy.workers.states import Event, State


class Subject:
    """A `Health` with its clock and what it told."""

    def __init__(self, *, ready: bool = True, slow_start: float = 0.0) -> None:
        self.clock = Clock()
        self.events: list[Event | None] = []
        self.health = Health(
            clock=self.clock,
            eject_after=3,
            eject_seconds=2.0,
            slow_start_seconds=slow_start,
            notify=self.events.append,
        )
        if ready:
            self.health.probe_answered(0.002)
            self.events.clear()

    def takes_legs(self) -> bool:
        return self.health.takes_legs(self.clock())

    def legs(self, *outcomes: LegOutcome, **options) -> None:
        for outcome in outcomes:
            self.health.leg_ended(outcome, **options)

    def trial(self, outcome: LegOutcome) -> None:
        assert self.takes_legs()
        self.health.begin_trial()
        assert not self.takes_legs()
        self.health.leg_ended(outcome, trial=True)


@pytest.fixture
def subject():
    return Subject()


# Legs


@pytest.mark.parametrize("outcome", sorted(FAILURES))
def test_three_failures_eject_for_two_seconds(subject, outcome):
    subject.legs(outcome, outcome)
    assert subject.takes_legs()
    subject.legs(outcome)
    assert (subject.health.condition, subject.takes_legs()) == (State.EJECTED, False)
    assert subject.events[-1] is Event.FAILS
    assert subject.health.ejections == {outcome: 1}
    assert subject.health.changes_at(subject.clock()) == subject.clock() + 2
    subject.clock.advance(2)
    subject.trial(LegOutcome.OK)
    assert (subject.health.condition, subject.takes_legs()) == (State.READY, True)
    assert subject.events[-1] is Event.ANSWERS


@pytest.mark.parametrize("neutral", [LegOutcome.CLIENT_ERROR, LegOutcome.CANCELLED, LegOutcome.BUSY])
def test_neutral_outcomes_never_eject(subject, neutral):
    subject.legs(*[neutral] * 100)
    subject.clock.advance(5)
    assert subject.takes_legs()
    assert subject.health.breaker.state is BreakerState.CLOSED


def test_neutral_outcomes_do_not_interrupt_a_row_of_failures(subject):
    subject.legs(
        LegOutcome.RESET, LegOutcome.CLIENT_ERROR, LegOutcome.RESET, LegOutcome.CANCELLED, LegOutcome.RESET
    )
    assert subject.health.condition is State.EJECTED


def test_more_failures_than_successes_eject(subject):
    for _ in range(5):
        subject.legs(LegOutcome.SERVER_ERROR, LegOutcome.OK, LegOutcome.SERVER_ERROR)
    assert subject.takes_legs()
    subject.legs(LegOutcome.OK, LegOutcome.SERVER_ERROR)
    assert not subject.takes_legs()
    assert subject.health.ejections == {FAILURE_SHARE: 1}


@pytest.mark.parametrize(
    ("reason", "outcome", "state"),
    [
        (LegOutcome.RESET, LegOutcome.RESET, BreakerState.OPEN),
        (LegOutcome.RESET, LegOutcome.CANCELLED, BreakerState.HALF_OPEN),
        (LegOutcome.RESET, LegOutcome.CLIENT_ERROR, BreakerState.CLOSED),
        (LegOutcome.TIMEOUT, LegOutcome.CLIENT_ERROR, BreakerState.CLOSED),
        (LegOutcome.SERVER_ERROR, LegOutcome.CLIENT_ERROR, BreakerState.HALF_OPEN),
        (FAILURE_SHARE, LegOutcome.CLIENT_ERROR, BreakerState.HALF_OPEN),
        (CLIENT_ERRORS, LegOutcome.CLIENT_ERROR, BreakerState.OPEN),
        (CLIENT_ERRORS, LegOutcome.OK, BreakerState.CLOSED),
        (CANARY, LegOutcome.OK, BreakerState.CLOSED),
    ],
)
def test_trials(subject, reason, outcome, state):
    subject.health.eject(reason)
    subject.clock.advance(2)
    subject.trial(outcome)
    assert subject.health.breaker.state is state
    assert subject.takes_legs() is (state is not BreakerState.OPEN)


def test_a_busy_trial_ends_after_the_lease(subject):
    subject.health.eject(LegOutcome.RESET)
    subject.clock.advance(2)
    subject.trial(LegOutcome.BUSY)
    assert not subject.takes_legs()
    subject.clock.advance(1)
    subject.trial(LegOutcome.OK)
    assert subject.takes_legs()


def test_a_trial_succeeds_with_the_head_of_a_stream(subject):
    subject.health.eject(LegOutcome.RESET)
    subject.clock.advance(2)
    subject.health.begin_trial()
    subject.health.leg_answers(trial=True)
    assert subject.health.condition is State.READY
    subject.legs(LegOutcome.RESET)  # the stream broke off later
    assert subject.health.condition is State.READY


@pytest.mark.parametrize(("retry_after", "lease"), [(None, 1.0), (0.0, 0.0), (3.0, 3.0), (3600.0, 5.0)])
def test_busy_for_a_while(subject, retry_after, lease):
    began = subject.clock()
    subject.legs(LegOutcome.BUSY, retry_after=retry_after)
    assert subject.takes_legs() is (lease == 0)
    assert subject.health.busy_until == began + lease
    subject.clock.advance(lease)
    assert subject.takes_legs()
    assert subject.health.condition is State.READY
    assert subject.health.busy_marks == 1


def test_a_last_resort_that_works_ends_the_ejection(subject):
    subject.legs(*[LegOutcome.RESET] * 3)
    before = subject.health.breaker.open_until
    subject.legs(LegOutcome.RESET, last_resort=True)
    assert subject.health.breaker.open_until == before  # nothing new
    subject.legs(LegOutcome.OK, last_resort=True)
    assert subject.health.condition is State.READY


# Probes


def test_a_worker_starts_with_its_first_answer():
    subject = Subject(ready=False)
    assert not subject.takes_legs()
    for _ in range(10):
        subject.health.probe_failed(timed_out=False)
    assert subject.health.condition is State.STARTING
    assert not subject.health.ejections
    subject.health.probe_answered(0.5)
    assert subject.takes_legs()
    assert subject.events == [Event.ANSWERS]
    assert subject.health.probe_seconds == 0.5


@pytest.mark.parametrize("timed_out", [False, True])
def test_three_failed_probes_eject_until_one_succeeds(subject, timed_out):
    for _ in range(2):
        subject.health.probe_failed(timed_out=timed_out)
    assert subject.takes_legs()
    subject.health.probe_failed(timed_out=timed_out)
    assert (subject.health.condition, subject.health.unreachable) == (State.EJECTED, True)
    subject.clock.advance(3600)
    assert not subject.takes_legs()
    subject.health.probe_failed(timed_out=timed_out)
    assert subject.health.ejections == {PROBE: 1}
    subject.health.probe_answered(0.001)
    assert subject.takes_legs()


@pytest.mark.parametrize("outcome", [LegOutcome.OK, LegOutcome.CLIENT_ERROR, LegOutcome.BUSY])
def test_silence_does_not_eject_a_worker_that_answers_legs(subject, outcome):
    subject.legs(outcome)
    subject.clock.advance(9.9)
    for _ in range(10):
        subject.health.probe_failed(timed_out=True)
    assert subject.health.condition is State.READY
    subject.clock.advance(0.1)
    for _ in range(3):
        subject.health.probe_failed(timed_out=True)
    assert subject.health.condition is State.EJECTED


def test_a_clear_no_ejects_a_worker_that_answers_legs(subject):
    subject.legs(LegOutcome.OK)
    for _ in range(3):
        subject.health.probe_failed(timed_out=False)
    assert subject.health.condition is State.EJECTED


def test_a_worker_that_loads_again_is_starting(subject):
    subject.health.probe_found_loading()
    assert (subject.health.condition, subject.events) == (State.STARTING, [Event.LOADS])
    assert not subject.takes_legs()
    subject.health.probe_answered(0.001)
    assert subject.takes_legs()


@pytest.mark.parametrize(
    ("reason", "failed_probe", "at_once"),
    [
        (LegOutcome.CONNECT_FAILED, False, True),
        (LegOutcome.RESET, False, False),
        (LegOutcome.RESET, True, True),
        (LegOutcome.SERVER_ERROR, False, False),
        (LegOutcome.SERVER_ERROR, True, True),
        (CLIENT_ERRORS, False, False),
        (LegOutcome.TIMEOUT, False, False),
    ],
)
def test_a_probe_that_succeeds_allows_a_trial_if_it_means_something(subject, reason, failed_probe, at_once):
    for _ in range(5):
        subject.health.eject(reason)
    if failed_probe:
        subject.health.probe_failed(timed_out=False)
    subject.health.probe_answered(0.001)
    assert subject.health.condition is State.EJECTED
    assert subject.takes_legs() is at_once
    if at_once:
        subject.trial(LegOutcome.OK)
        assert subject.health.condition is State.READY


def test_a_new_process_gets_a_trial_at_once(subject):
    """Killed with legs on it, refuses connections, loads, answers."""
    subject.legs(*[LegOutcome.RESET] * 16)
    for _ in range(3):
        subject.health.probe_failed(timed_out=False)
    subject.health.probe_found_loading()
    subject.health.probe_answered(0.001)
    subject.trial(LegOutcome.OK)
    assert subject.health.condition is State.READY


def test_probes_come_without_delay_while_something_is_wrong(subject):
    assert not subject.health.suspicious
    subject.health.probe_failed(timed_out=False)
    assert subject.health.suspicious
    subject.health.probe_answered(0.001)
    assert not subject.health.suspicious
    subject.health.eject(LegOutcome.RESET)
    assert subject.health.suspicious


@pytest.mark.parametrize("probes", [False, True])
def test_all_is_forgiven(subject, probes):
    subject.legs(LegOutcome.BUSY, *[LegOutcome.RESET] * 19)
    for _ in range(3 * probes):
        subject.health.probe_failed(timed_out=False)
    assert subject.health.condition is State.EJECTED
    subject.health.forgive()
    assert subject.takes_legs()
    assert subject.events[-1] is None
    subject.legs(LegOutcome.RESET, LegOutcome.RESET)
    assert subject.takes_legs()


# The canary


def test_three_failed_canaries_eject(subject):
    for _ in range(2):
        subject.health.canary_failed()
    subject.health.canary_passed()
    for _ in range(3):
        assert subject.health.condition is State.READY
        subject.health.canary_failed()
    assert subject.health.ejections == {CANARY: 1}


# Slow start


def test_a_worker_that_comes_back_gets_its_share_slowly():
    subject = Subject(slow_start=10.0)
    assert subject.health.share(subject.clock()) == 1.0  # the first start
    subject.health.eject(LegOutcome.RESET)
    subject.clock.advance(2)
    subject.trial(LegOutcome.OK)
    shares = []
    for _ in range(5):
        shares.append(subject.health.share(subject.clock()))
        subject.clock.advance(2.5)
    assert shares == [0.1, 0.25, 0.5, 0.75, 1.0]
    assert subject.health.returned_at is None


@pytest.mark.parametrize(
    "mark",
    [
        lambda subject: subject.legs(LegOutcome.BUSY, retry_after=1e9),
        lambda subject: subject.legs(*[LegOutcome.SERVER_ERROR] * 1000),
        lambda subject: [subject.health.eject(CLIENT_ERRORS) for _ in range(1000)],
        lambda subject: [subject.health.canary_failed() for _ in range(1000)],
    ],
)
def test_every_mark_ends_by_itself_within_a_minute(subject, mark):
    mark(subject)
    assert not subject.takes_legs()
    subject.clock.advance(60)
    assert subject.takes_legs()
