"""The comparison of one process with several: that it counts right, not what comes out."""

import pytest

from bench.scaling import Load, measure


def test_every_request_has_its_process():
    cost, shares = measure(2, Load(rate=100, seconds=1.0, connections=64))
    assert 0 < cost < 100
    assert len(shares) == 2
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0
