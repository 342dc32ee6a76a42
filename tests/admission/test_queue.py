import pytest

from proxy.admission.queue import WaitingQueue


class Somebody:
    def __init__(self, size=1, priority=0.5):
        self.size = size
        self.priority = priority


def drained(queue):
    order = []
    while queue:
        first = queue.first()
        assert queue.remove(first)
        order.append(first)
    return order


def test_order_of_arrival():
    queue = WaitingQueue(by_priority=False)
    people = [Somebody(priority=priority) for priority in (0.1, 0.9, 0.5)]
    for each in people:
        queue.add(each)
    assert list(queue) == people
    assert drained(queue) == people


def test_order_of_priority():
    queue = WaitingQueue(by_priority=True)
    low, high, middle, second_high = (Somebody(priority=priority) for priority in (0.1, 0.9, 0.5, 0.9))
    for each in (low, high, middle, second_high):
        queue.add(each)
    assert drained(queue) == [high, second_high, middle, low]


def test_leaving_early():
    queue = WaitingQueue(by_priority=False)
    first, second = Somebody(3), Somebody(4)
    queue.add(first)
    queue.add(second)
    assert (len(queue), queue.size) == (2, 7)
    assert queue.remove(first)
    assert not queue.remove(first)
    assert (len(queue), queue.size) == (1, 4)
    assert queue.first() is second
    assert queue.remove(second)
    with pytest.raises(IndexError):
        queue.first()


def test_those_who_left_are_forgotten():
    queue = WaitingQueue(by_priority=True)
    stays = Somebody(priority=0.0)
    queue.add(stays)
    for _ in range(1000):
        leaves = Somebody()
        queue.add(leaves)
        queue.remove(leaves)
    assert len(queue._entries) < 100
    assert queue.first() is stays
