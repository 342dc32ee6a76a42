"""How long a request may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.errors import InvalidRequest

if TYPE_CHECKING:
    from proxy.lifecycle.headers import Headers

_TIMEOUT_HEADER = b"x-request-timeout-ms"
# Thirty years: more is no limit, and Python does not read numbers of any length.
_MOST_DIGITS = 12


def read_deadline(headers: Headers, limit: float) -> float:
    """Seconds for the whole request: `timeout_total`, which a client may shorten by a header; 0 = no limit.

    Args:
        headers: of the client.
        limit: `timeout_total`.

    Raises:
        InvalidRequest: the header is no positive number.
    """
    for name, value in headers:
        if name == _TIMEOUT_HEADER:
            digits = value.lstrip(b"0")
            if not digits.isdigit():
                raise InvalidRequest("x-request-timeout-ms must be a positive number of milliseconds")
            if len(digits) > _MOST_DIGITS:
                return limit
            asked = int(digits) / 1000
            return min(limit, asked) if limit else asked
    return limit
