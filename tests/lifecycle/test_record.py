import pytest

from proxy.errors import ClientGone, InvalidRequest, NotReady
from proxy.lifecycle.record import RequestRecord


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [
        (200, None, "ok"),
        (400, None, "rejected"),
        (503, None, "error"),  # a worker's own answer
        (503, NotReady("x"), "error"),
        (400, InvalidRequest("x"), "rejected"),
        (200, InvalidRequest("x"), "rejected"),  # told by an event
        (200, NotReady("x"), "error"),  # a stream that broke off
        (499, ClientGone("x"), "client_closed"),
        (499, None, "client_closed"),
    ],
)
def test_outcomes(status, error, outcome) -> None:
    record = RequestRecord("id", 1.0)
    record.status = status
    record.error = error
    assert record.outcome == outcome


def test_a_new_record_tells_nothing() -> None:
    record = RequestRecord("id", 1.0)
    assert (record.request_id, record.received, record.route, record.answered_by) == (
        "id",
        1.0,
        "other",
        "proxy",
    )
    assert not hasattr(record, "__dict__")
    filled = {"answered_by", "received", "request_id", "route"}
    assert all(not getattr(record, name) for name in set(RequestRecord.__slots__) - filled)
