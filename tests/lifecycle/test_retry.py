"""Retry budget and delays, with a clock of our own."""

import random

import pytest

from proxy.lifecycle.retry import RetryBudget, delay_before


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(budget, tries):
    return sum(budget.take() for _ in range(tries))


def test_a_quiet_proxy_may_retry_a_little():
    assert taken(RetryBudget(0.2, Clock()), 50) == 10


def test_the_budget_is_a_share_of_the_requests():
    budget = RetryBudget(0.2, Clock())
    for _ in range(1000):
        budget.note_request()
    assert taken(budget, 1000) == 200
    assert budget.exhausted == 800


def test_a_ratio_of_zero_forbids_retries():
    budget = RetryBudget(0.0, Clock())
    budget.note_request()
    assert not budget.take()


@pytest.mark.parametrize(("pause", "allowed"), [(4.9, 0), (5.0, 0), (10.0, 10), (3600.0, 10)])
def test_old_traffic_is_forgotten(pause, allowed):
    clock = Clock()
    budget = RetryBudget(0.2, clock)
    assert taken(budget, 10) == 10
    clock.now += pause
    assert taken(budget, 10) == allowed


def test_steady_traffic_keeps_its_share():
    clock = Clock()
    budget = RetryBudget(0.2, clock)
    retries = requests = 0
    for _ in range(6000):
        clock.now += 0.01
        budget.note_request()
        requests += 1
        retries += budget.take()
    assert retries <= 0.2 * requests + 10


@pytest.mark.parametrize(
    ("attempt", "retry_after", "least", "most"),
    [
        (1, None, 0.0125, 0.025),
        (2, None, 0.025, 0.05),
        (3, None, 0.05, 0.1),
        (20, None, 0.5, 1.0),
        (1, 0.0, 0, 0),
        (5, 2.0, 2, 2),
    ],
)
def test_delays(attempt, retry_after, least, most):
    chance = random.Random(1)
    for _ in range(100):
        assert least <= delay_before(attempt, retry_after, chance) <= most


def test_a_worker_that_asks_for_a_long_time_is_not_asked_again():
    assert delay_before(1, 2.1, random.Random(1)) is None
