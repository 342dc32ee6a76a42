import pytest

from proxy.errors import BrokenAnswer, ClientGone, ConnectFailed, ConnectionBroken, LegTimeout, Retry
from proxy.workers.outcome import LegOutcome, outcome_of_error, outcome_of_status, retry_after_seconds
from proxy.workers.peers import refuses_alone
from proxy.workers.recent import LENGTH, RecentOutcomes


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, LegOutcome.OK),
        (204, LegOutcome.OK),
        (307, LegOutcome.OK),
        (400, LegOutcome.CLIENT_ERROR),
        (408, LegOutcome.CLIENT_ERROR),
        (422, LegOutcome.CLIENT_ERROR),
        (429, LegOutcome.BUSY),
        (500, LegOutcome.SERVER_ERROR),
        (502, LegOutcome.SERVER_ERROR),
        (503, LegOutcome.BUSY),
        (504, LegOutcome.SERVER_ERROR),
    ],
)
def test_statuses(status, outcome):
    assert outcome_of_status(status) is outcome


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectFailed("x"), LegOutcome.CONNECT_FAILED),
        (ConnectionBroken("x", retry=Retry.NEVER), LegOutcome.RESET),
        (BrokenAnswer("x"), LegOutcome.SERVER_ERROR),
        (ConnectionBroken("x", retry=Retry.REUSED_ONLY), LegOutcome.CANCELLED),
        (LegTimeout("x"), LegOutcome.TIMEOUT),
        (LegTimeout("x", code="idle_timeout"), LegOutcome.TIMEOUT),
        (LegTimeout("x", code="connect_timeout"), LegOutcome.CONNECT_FAILED),
        (LegTimeout("x", code="deadline_exceeded"), LegOutcome.CANCELLED),
        (ClientGone("x"), LegOutcome.CANCELLED),
        (ValueError("x"), LegOutcome.CANCELLED),
        (KeyboardInterrupt(), LegOutcome.CANCELLED),
    ],
)
def test_errors(error, outcome):
    assert outcome_of_error(error) is outcome


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (b"0", 0.0),
        (b"3", 3.0),
        (b"-1", None),
        (b"", None),
        (b"9" * 30, None),
        (b"Fri, 31 Dec", None),
    ],
)
def test_retry_after(value, seconds):
    assert retry_after_seconds(value) == seconds


def outcomes(*groups: tuple[LegOutcome, int]) -> RecentOutcomes:
    recent = RecentOutcomes()
    for outcome, number in groups:
        for _ in range(number):
            recent.add(outcome)
    return recent


def test_only_the_last_twenty_count():
    recent = outcomes((LegOutcome.CLIENT_ERROR, 30), (LegOutcome.RESET, 11), (LegOutcome.OK, 5))
    assert (len(recent), recent.client_errors, recent.failures) == (LENGTH, 4, 11)
    assert recent.mostly_failures
    recent.add(LegOutcome.OK)
    for _ in range(LENGTH):
        recent.add(LegOutcome.OK)
    assert (recent.client_errors, recent.failures) == (0, 0)
    recent.clear()
    assert len(recent) == 0


@pytest.mark.parametrize(
    ("client_errors", "peers", "alone"),
    [
        (20, [outcomes((LegOutcome.OK, 20))], True),
        (19, [outcomes((LegOutcome.OK, 20))], True),
        (18, [outcomes((LegOutcome.OK, 20))], False),
        (20, [outcomes((LegOutcome.OK, 10)), outcomes((LegOutcome.OK, 10))], True),
        (20, [outcomes((LegOutcome.OK, 19))], False),
        (20, [], False),
        (20, [outcomes((LegOutcome.OK, 18), (LegOutcome.CLIENT_ERROR, 2))], False),
        (20, [outcomes((LegOutcome.OK, 19), (LegOutcome.CLIENT_ERROR, 1))], True),
        (20, [outcomes((LegOutcome.CLIENT_ERROR, 20)), outcomes((LegOutcome.OK, 20))], False),
    ],
)
def test_a_worker_that_alone_refuses_everything(client_errors, peers, alone):
    suspect = outcomes((LegOutcome.OK, 20 - client_errors), (LegOutcome.CLIENT_ERROR, client_errors))
    assert refuses_alone(suspect, peers) is alone
