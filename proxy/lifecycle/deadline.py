"""How long a request may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.errors import InvalidRequest

if TYPE_CHECKING:
    from proxy.lifecycle.headers import Headers

_TIMEOUT_HEADER = b"x-request-timeout-ms"


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
            if not value.isdigit() or int(value) == 0:
                raise InvalidRequest("x-request-timeout-ms must be a positive number of milliseconds")
            asked = int(value) / 1000
            return min(limit, asked) if limit else asked
    return limit
