import time

import pytest

from proxy.wire.ids import MAXIMUM_ID, MINIMUM_ID, RequestIds, assemble_id


class Clock:
    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def parts(identifier: int) -> tuple[int, int, int, int]:
    raw = identifier - MINIMUM_ID
    return raw >> 24, raw >> 16 & 255, raw >> 10 & 63, raw & 1023


def test_known_id() -> None:
    assert assemble_id(123456789, node_id=5, process_id=3, counter=7) == 2072360727677959


def test_range() -> None:
    assert assemble_id(0, 0, 0, 0) == MINIMUM_ID == 2**40
    # The highest raw values wrap around to the lower end.
    assert MINIMUM_ID <= assemble_id(2**39 - 1, 255, 63, 1023) <= MAXIMUM_ID == 2**63 - 2
    assert assemble_id(2**39 + 5, 1, 1, 1) == assemble_id(5, 1, 1, 1)


@pytest.mark.parametrize(("node_id", "process_id"), [(-1, 0), (256, 0), (0, -1), (0, 64)])
def test_bad_parts_are_refused_at_once(node_id: int, process_id: int) -> None:
    with pytest.raises(ValueError, match=r"must be in 0\.\."):
        assemble_id(0, node_id, process_id, 0)
    with pytest.raises(ValueError, match=r"must be in 0\.\."):
        RequestIds(node_id, process_id)


def test_parts_are_used() -> None:
    clock = Clock(1_000_000)
    ids = RequestIds(255, 63, clock, lambda: 0)
    assert parts(ids.mint()) == (1_000_000, 255, 63, 0)
    assert parts(ids.mint()) == (1_000_000, 255, 63, 1)
    clock.now += 1
    assert parts(ids.mint()) == (1_000_001, 255, 63, 0)


def test_a_clock_that_steps_back_changes_nothing() -> None:
    clock = Clock(1_000_000)
    ids = RequestIds(1, clock=clock, first=lambda: 0)
    minted = [ids.mint()]
    for step in (-1, -1000, -500_000, 999):
        clock.now = 1_000_000 + step
        minted += [ids.mint(), ids.mint()]
    assert minted == sorted(set(minted))
    assert parts(minted[6])[0] == 1_000_000
    assert parts(minted[-1])[0] == 1_000_999


def test_overflow_borrows_the_next_millisecond() -> None:
    clock = Clock(1_000_000)
    ids = RequestIds(1, clock=clock, first=lambda: 0)
    minted = [ids.mint() for _ in range(2500)]
    assert minted == sorted(set(minted))
    assert [parts(minted[at])[::3] for at in (0, 1023, 1024, 2048)] == [
        (1_000_000, 0),
        (1_000_000, 1023),
        (1_000_001, 0),
        (1_000_002, 0),
    ]
    clock.now += 1  # less than what was borrowed
    assert ids.mint() > minted[-1]
    clock.now += 10
    assert parts(ids.mint())[::3] == (1_000_011, 0)


def test_equal_node_ids_seldom_make_equal_ids() -> None:
    """Proxies that know nothing of each other choose them at random, one of 256."""
    clock = Clock(1_000_000)
    one, other = RequestIds(7, clock=clock), RequestIds(7, clock=clock)
    equal = 0
    for _ in range(1000):
        clock.now += 1
        equal += one.mint() == other.mint()
    assert equal < 30


def test_a_million_ids_rise_strictly() -> None:
    ids = RequestIds(7, 3)
    mint = ids.mint
    before = 0
    for _ in range(1_000_000):
        minted = mint()
        assert minted > before
        before = minted
    assert before <= MAXIMUM_ID


def test_the_wall_clock_is_used() -> None:
    now = time.time_ns() // 1_000_000 % 2**39
    assert 0 <= parts(RequestIds(1).mint())[0] - now < 10_000
