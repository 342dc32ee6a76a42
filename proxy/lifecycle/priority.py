"""Who goes first under `queue_order: priority`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from proxy.errors import InvalidRequest
from proxy.wire.errors import InvalidField

if TYPE_CHECKING:
    from proxy.lifecycle.headers import Headers

PRIORITY_HEADER = b"x-disagg-proxy-priority"
DEFAULT_PRIORITY = 0.5
"""TensorRT-LLM's own (`Request::kDefaultPriority` of its executor)."""

_PROBLEM = "must be a number between 0 and 1; higher goes first"
_number = msgspec.json.Decoder(float)


def read_priority(headers: Headers, member: msgspec.Raw | None) -> float:
    """The header if there is one, else the request's `priority` member.

    Raises:
        InvalidRequest, InvalidField: it is no number between 0 and 1.
    """
    for name, value in headers:
        if name == PRIORITY_HEADER:
            priority = _read(value)
            if priority is None:
                raise InvalidRequest(f"{PRIORITY_HEADER.decode()} {_PROBLEM}")
            return priority
    if member is None or bytes(member) == b"null":
        return DEFAULT_PRIORITY
    priority = _read(member)
    if priority is None:
        raise InvalidField("priority", f"priority {_PROBLEM}")
    return priority


def _read(value: bytes | msgspec.Raw) -> float | None:
    try:
        number = _number.decode(value)
    except msgspec.DecodeError:
        return None
    return number if 0 <= number <= 1 else None
