"""How a leg ended, as far as its worker's health is concerned."""

from __future__ import annotations

from enum import StrEnum

from proxy.errors import BrokenAnswer, ConnectFailed, ConnectionBroken, LegFault, LegTimeout, Retry


class LegOutcome(StrEnum):
    """What a leg says about its worker. The values are metric labels."""

    OK = "ok"
    CLIENT_ERROR = "client_error"
    """A 4xx other than 429: says nothing, unless it is nearly all that the worker answers."""
    SERVER_ERROR = "server_error"
    """A 5xx other than 503, an answer that is not HTTP or lacks what must be in it."""
    BUSY = "busy"
    """429 or 503: sound, but it does not want more now."""
    CONNECT_FAILED = "connect_failed"
    RESET = "reset"
    """The connection ended before the answer did."""
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    """Ended by us or by the client: says nothing."""


FAILURES = frozenset(
    {LegOutcome.SERVER_ERROR, LegOutcome.CONNECT_FAILED, LegOutcome.RESET, LegOutcome.TIMEOUT}
)
"""The outcomes that count against a worker at once."""

_OF_ERRORS: tuple[tuple[type[LegFault], LegOutcome], ...] = (
    (ConnectFailed, LegOutcome.CONNECT_FAILED),
    (ConnectionBroken, LegOutcome.RESET),
    (BrokenAnswer, LegOutcome.SERVER_ERROR),
)


def outcome_of_status(status: int) -> LegOutcome:
    """The outcome of a leg that was answered with this HTTP status."""
    if status < 400:
        return LegOutcome.OK
    if status in (429, 503):
        return LegOutcome.BUSY
    return LegOutcome.CLIENT_ERROR if status < 500 else LegOutcome.SERVER_ERROR


# Time-outs that are not the worker's: the client may have asked for as little time as it likes.
_OF_TIMEOUTS = {
    "deadline_exceeded": LegOutcome.CANCELLED,
    "connect_timeout": LegOutcome.CONNECT_FAILED,
}


def outcome_of_error(error: BaseException) -> LegOutcome:
    """The outcome of a leg that ended with an exception; whatever is not the worker's fault is `CANCELLED`."""
    if isinstance(error, LegTimeout):
        return _OF_TIMEOUTS.get(error.code, LegOutcome.TIMEOUT)
    if isinstance(error, ConnectionBroken) and error.retry is Retry.REUSED_ONLY:
        return LegOutcome.CANCELLED  # the worker closed an idle connection, as it may at any time
    return next((outcome for kind, outcome in _OF_ERRORS if isinstance(error, kind)), LegOutcome.CANCELLED)


def retry_after_seconds(value: bytes | None) -> float | None:
    """A `Retry-After` header in seconds; None without one and for its other form, a date (RFC 9110 §10.2.3)."""
    return float(value) if value is not None and value.isdigit() and len(value) < 10 else None
