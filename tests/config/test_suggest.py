import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.suggest import closest, edit_distance


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [
        ("", "", 0),
        ("a", "", 1),
        ("port", "prt", 1),
        ("port", "prot", 2),
        ("kitten", "sitting", 3),
        ("urls", "url", 1),
    ],
)
def test_distance(left, right, distance):
    assert edit_distance(left, right) == edit_distance(right, left) == distance


@given(st.text("ab", max_size=6), st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_distance_is_a_metric(a, b, c):
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


@pytest.mark.parametrize(
    ("word", "best"),
    [
        ("hostnme", "hostname"),
        ("ports", "port"),
        ("part", "port"),
        ("model", None),
        ("", None),
        ("max_batch_size", None),
    ],
)
def test_closest(word, best):
    assert closest(word, ["hostname", "port", "max_retries"]) == best


def test_nearest_wins_then_alphabet():
    assert closest("timeout_iddle", ["timeout_idle", "timeout_riddle"]) == "timeout_idle"
    assert closest("ab", ["ad", "ac"]) == "ac"
    assert closest("x", []) is None
