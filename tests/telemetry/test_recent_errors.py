from typing import Any

from proxy.errors import ClientGone, InvalidRequest
from proxy.lifecycle.record import RequestRecord
from proxy.telemetry.recent_errors import MOST, RecentErrors

SCOPE: Any = {"type": "http", "method": "POST"}


def record(name: str, status: int, error: Any = None) -> RequestRecord:
    made = RequestRecord(name, 0.0)
    made.status, made.error = status, error
    return made


async def test_only_the_last_failures_are_kept() -> None:
    errors = RecentErrors()
    for number in range(2 * MOST):
        errors.settle(record(f"r{number}", 400, InvalidRequest("no")), SCOPE)
        errors.settle(record("fine", 200), SCOPE)
        errors.settle(record("left", 499, ClientGone("left")), SCOPE)
        errors.settle(record("left-at-once", 499), SCOPE)
    told = await errors.tell(None)
    assert [each["request_id"] for each in told] == [f"r{number}" for number in range(MOST, 2 * MOST)]
    assert told[0]["error"] == "client;invalid_value"
    assert told[0]["worker"] == ""


async def test_a_stream_that_broke_off_is_one() -> None:
    errors = RecentErrors()
    errors.settle(record("r", 200, InvalidRequest("no")), SCOPE)
    assert [each["status"] for each in await errors.tell(None)] == [200]
