import mmap

import pytest
from admission_world import FakeTimers, World

from proxy.admission.board import AdmissionBoard, Counts
from proxy.errors import KeyLimitReached
from proxy.telemetry.shared import SharedMetrics


def boards(number):
    memory = SharedMetrics(mmap.mmap(-1, SharedMetrics.size(number)), number)
    for row in memory.rows:
        row.open()
    made = [AdmissionBoard(row, [other for other in memory.rows if other is not row]) for row in memory.rows]
    return memory, made


def test_everybody_sees_the_others():
    _, (one, two, three) = boards(3)
    one.show(1, 2, 3)
    two.show(4, 5, 6)
    assert three.others() == [Counts(1, 2, 3), Counts(4, 5, 6)]
    assert three.sums() == (5, 7, 9)
    assert one.others() == [Counts(4, 5, 6), Counts(0, 0, 0)]


def test_a_process_that_has_shown_nothing_yet():
    memory = SharedMetrics(mmap.mmap(-1, SharedMetrics.size(2)), 2)
    for row in memory.rows:
        row.open()
    one = AdmissionBoard(memory.rows[0], memory.rows[1:])
    assert one.sums() == (0, 0, 0)
    assert one.others() == [Counts(0, 0, 0)]
    AdmissionBoard(memory.rows[1], memory.rows[:1]).show(1, 2, 3)
    assert one.sums() == (1, 2, 3)


def test_keys():
    _, (one, two) = boards(2)
    assert two.key_of_others("a") == 0
    one.show_key("a", 2)
    one.show_key("b", 1)
    assert (two.key_of_others("a"), two.key_of_others("b"), one.key_of_others("a")) == (2, 1, 0)
    one.show_key("a", 0)
    assert two.key_of_others("a") == 0


def test_a_process_that_ended_has_no_requests():
    memory, (one, two) = boards(2)
    one.show(1, 1, 1)
    one.show_key("a", 2)
    assert two.key_of_others("a") == 2
    assert two.sums() == (1, 1, 1)
    memory.rows[0].close()
    assert two.others() == [Counts(0, 0, 0)]
    assert two.sums() == (0, 0, 0)
    assert two.key_of_others("a") == 0


async def test_the_limit_is_one_for_all_processes():
    timers = FakeTimers()
    _, made = boards(2)
    one, two = (World(max_inflight=4, board=board, timers=timers) for board in made)
    permits = [one.admission.enter() for _ in range(4)]
    assert two.admission.enter() is None
    _, waiting = two.wait()
    _, also_waiting = one.wait()
    # The place that becomes free here is seen there at the next look, and is theirs: they have nothing.
    permits.pop().release()
    assert not also_waiting.done()
    timers.advance(0.010)
    assert waiting.done()
    assert not also_waiting.done()
    for permit in permits:
        permit.release()
    assert also_waiting.done()
    waiting.result().release()
    also_waiting.result().release()
    for world in (one, two):
        world.assert_empty()


async def test_the_limit_per_key_is_one_for_all_processes():
    _, made = boards(2)
    one, two = (World(max_inflight_per_key=1, board=board) for board in made)
    permit = one.admission.enter("a")
    with pytest.raises(KeyLimitReached):
        two.admission.enter("a")
    permit.release()
    two.admission.enter("a").release()
