import pytest

from proxy.admission.capacity import Capacity, PoolsCapacity, pool_capacity


@pytest.mark.parametrize(
    ("sizes", "per_worker", "expected"),
    [
        ((8, 8), 0, 0),
        ((8, None), 4, 8),
        ((8, 16), "auto", 24),
        ((8, None), "auto", 0),
        ((), 4, 0),
        ((), "auto", 0),
    ],
)
def test_pool_capacity(sizes, per_worker, expected):
    assert pool_capacity(sizes, per_worker) == expected


def test_the_pools_are_asked_ten_times_a_second():
    now = 0.0
    context, generation = [1], [2, 3]
    capacity = PoolsCapacity(
        lambda: context,
        lambda: generation,
        per_context_worker=2,
        per_generation_worker="auto",
        clock=lambda: now,
    )
    assert capacity() == Capacity(context=2, generation=5)
    generation.pop()
    now = 0.05
    assert capacity() == Capacity(context=2, generation=5)
    now = 0.1
    assert capacity() == Capacity(context=2, generation=2)
