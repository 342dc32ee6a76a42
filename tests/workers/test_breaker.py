import pytest
from worker_fakes import Clock

from proxy.workers.breaker import Breaker, BreakerState


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def breaker(clock):
    return Breaker(clock=clock, threshold=3, seconds=2.0)


def test_failures_in_a_row_open_it(breaker):
    assert [breaker.fail("reset") for _ in range(3)] == [False, False, True]
    assert (breaker.state, breaker.closed, breaker.reason) == (BreakerState.OPEN, False, "reset")


def test_a_success_between_them_starts_the_count_again(breaker):
    for _ in range(10):
        breaker.fail("reset")
        breaker.fail("reset")
        breaker.succeed()
    assert breaker.state is BreakerState.CLOSED


def test_it_opens_twice_as_long_each_time_up_to_a_minute(breaker, clock):
    lengths = []
    breaker.open("timeout")
    for _ in range(8):
        lengths.append(breaker.open_until - clock())
        clock.now = breaker.open_until
        assert breaker.wants_trial
        breaker.begin_trial()
        assert breaker.fail("timeout", trial=True)
    assert lengths == [2, 4, 8, 16, 32, 60, 60, 60]


def test_one_trial_at_a_time(breaker, clock):
    breaker.open("reset")
    assert not breaker.wants_trial
    clock.advance(2)
    assert (breaker.state, breaker.wants_trial) == (BreakerState.HALF_OPEN, True)
    breaker.begin_trial()
    assert not breaker.wants_trial
    breaker.end_trial()
    assert breaker.wants_trial
    breaker.begin_trial()
    breaker.succeed(trial=True)
    assert breaker.state is BreakerState.CLOSED


def test_legs_that_began_before_it_opened_say_nothing(breaker, clock):
    breaker.open("reset")
    breaker.succeed()
    assert not breaker.fail("reset")
    assert breaker.open_until == clock() + 2
    clock.advance(2)
    breaker.succeed()
    assert breaker.state is BreakerState.HALF_OPEN


@pytest.mark.parametrize(("peace", "seconds"), [(10, 4), (61, 2)])
def test_a_minute_of_peace_forgets_the_past(breaker, clock, peace, seconds):
    breaker.open("reset")
    clock.advance(2)
    breaker.begin_trial()
    breaker.succeed(trial=True)
    clock.advance(peace)
    breaker.open("reset")
    assert breaker.open_until - clock() == seconds


def test_what_opened_it_may_have_gone_at_once(breaker, clock):
    for _ in range(4):
        breaker.open("connect_failed")
    breaker.allow_trial()
    assert breaker.wants_trial
    breaker.begin_trial()
    breaker.fail("connect_failed", trial=True)
    assert breaker.open_until - clock() == 2
    breaker.succeed(trial=True)
    breaker.allow_trial()
    assert breaker.closed
