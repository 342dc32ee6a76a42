"""The time that a client allows."""

import pytest

from proxy.errors import InvalidRequest
from proxy.lifecycle.deadline import read_deadline


def deadline(value: bytes, limit: float = 60.0) -> float:
    return read_deadline([(b"host", b"x"), (b"x-request-timeout-ms", value)], limit)


@pytest.mark.parametrize(
    ("value", "seconds"), [(b"1500", 1.5), (b"0001500", 1.5), (b"60001", 60.0), (b"9" * 12, 60.0)]
)
def test_it_shortens_the_limit(value: bytes, seconds: float) -> None:
    assert deadline(value) == seconds


@pytest.mark.parametrize("digits", [13, 400, 5000])
def test_numbers_of_any_length_are_no_limit(digits: int) -> None:
    """Python refuses to read such long ones, and to divide some shorter ones."""
    assert deadline(b"9" * digits) == 60.0
    assert deadline(b"9" * digits, 0.0) == 0.0


def test_without_a_limit() -> None:
    assert deadline(b"1500", 0.0) == 1.5
    assert read_deadline([], 0.0) == 0.0


@pytest.mark.parametrize("value", [b"", b"0", b"000", b"-1", b"1.5", b"1e3", b"soon", "\u0662".encode()])
def test_what_is_no_positive_number_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidRequest):
        deadline(value)
