import itertools

import pytest

from proxy.admission.room import Other, has_room


@pytest.mark.parametrize(("limit", "own", "expected"), [(0, 10**6, True), (2, 1, True), (2, 2, False)])
def test_alone(limit, own, expected):
    assert has_room(limit, own) is expected


def test_the_sum_counts():
    assert has_room(10, 4, [Other(5, False)])
    assert not has_room(10, 5, [Other(5, False)])


def test_a_busy_process_leaves_room_to_one_that_waits():
    # Nine of ten places are used here, and requests wait elsewhere.
    assert has_room(10, 9, [Other(0, False)])
    assert not has_room(10, 9, [Other(0, True)])
    assert has_room(10, 0, [Other(9, True)])


def test_somebody_who_waits_always_gets_a_free_place():
    """Exhaustively for small numbers: no dead lock, and never more than the limit."""
    for limit in (1, 2, 3, 5):
        for used in itertools.product(range(limit + 1), repeat=3):
            if sum(used) > limit:
                continue
            for waiting in itertools.product([False, True], repeat=3):
                if not any(waiting):
                    continue
                processes = [Other(*pair) for pair in zip(used, waiting, strict=True)]
                may = [
                    has_room(limit, process.used, processes[:index] + processes[index + 1 :])
                    for index, process in enumerate(processes)
                    if process.waiting
                ]
                assert any(may) == (sum(used) < limit), (limit, processes)
