import itertools

import pytest

from proxy.workers.states import TRANSITIONS, Event, State, after


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], State.STARTING),
        ([Event.ANSWERS], State.READY),
        ([Event.ANSWERS, Event.FAILS], State.EJECTED),
        ([Event.ANSWERS, Event.FAILS, Event.ANSWERS], State.READY),
        ([Event.ANSWERS, Event.LOADS], State.STARTING),
        ([Event.ANSWERS, Event.FAILS, Event.LOADS], State.STARTING),
        ([Event.DELISTED], State.DRAINING),
        ([Event.ANSWERS, Event.DELISTED, Event.FAILS, Event.ANSWERS], State.DRAINING),
        ([Event.ANSWERS, Event.DELISTED, Event.RELISTED], State.STARTING),
        ([Event.ANSWERS, Event.DELISTED, Event.EMPTY], State.GONE),
        ([Event.ANSWERS, Event.EMPTY], State.READY),
    ],
)
def test_lives(events, state):
    current = State.STARTING
    for event in events:
        current = after(current, event)
    assert current is state


def test_nobody_returns_from_gone():
    assert {after(State.GONE, event) for event in Event} == {State.GONE}


def test_only_the_last_leg_ends_a_worker():
    assert {place for place, state in TRANSITIONS.items() if state is State.GONE} == {
        (State.DRAINING, Event.EMPTY)
    }


def test_every_state_but_the_first_can_be_reached():
    reached = {State.STARTING}
    for _ in State:
        reached |= {after(state, event) for state, event in itertools.product(reached, Event)}
    assert reached == set(State)
