"""The life of a worker as a literal table. Pure.

starting    listed, has not answered a health probe yet (or says that it still loads its model)
ready       gets legs
ejected     does not answer, or fails too often; gets trial legs when the breaker allows
draining    not listed any more: the legs that run on it end, new ones do not come
gone        its last leg has ended
"""

from enum import StrEnum


class State(StrEnum):
    """Where a worker is in its life."""

    STARTING = "starting"
    READY = "ready"
    EJECTED = "ejected"
    DRAINING = "draining"
    GONE = "gone"


class Event(StrEnum):
    """What happens to a worker."""

    ANSWERS = "answers"
    """It is healthy: a probe says so, and no breaker objects."""
    LOADS = "loads"
    """It answers that it is still loading its model."""
    FAILS = "fails"
    """Its probes or its legs have failed too often."""
    DELISTED = "delisted"
    """The worker list lacks it, or says that it drains."""
    RELISTED = "relisted"
    """It is back in the worker list."""
    EMPTY = "empty"
    """Its last leg has ended."""


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.STARTING, Event.ANSWERS): State.READY,
    (State.STARTING, Event.FAILS): State.EJECTED,
    (State.STARTING, Event.DELISTED): State.DRAINING,
    (State.READY, Event.LOADS): State.STARTING,
    (State.READY, Event.FAILS): State.EJECTED,
    (State.READY, Event.DELISTED): State.DRAINING,
    (State.EJECTED, Event.ANSWERS): State.READY,
    (State.EJECTED, Event.LOADS): State.STARTING,
    (State.EJECTED, Event.DELISTED): State.DRAINING,
    (State.DRAINING, Event.RELISTED): State.STARTING,
    (State.DRAINING, Event.EMPTY): State.GONE,
}
"""What is not listed changes nothing: whoever drains may fail or answer as it likes, and nobody returns from `gone`."""


def after(state: State, event: Event) -> State:
    """The state that follows."""
    return TRANSITIONS.get((state, event), state)
