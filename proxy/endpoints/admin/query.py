"""Parameters in the query strings of the admin routes."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from starlette.types import Scope

from proxy.errors import InvalidRequest


def read_query(scope: Scope, known: Collection[str]) -> dict[str, str]:
    """The parameters of a request.

    Raises:
        InvalidRequest: one is unknown or appears twice.
    """
    found: dict[str, str] = {}
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in known:
            expected = ", ".join(sorted(known)) or "none"
            raise InvalidRequest(f"unknown parameter; expected: {expected}", param=name)
        if name in found:
            raise InvalidRequest(f"{name} appears twice", param=name)
        found[name] = value
    return found


def read_seconds(query: dict[str, str], name: str) -> float:
    """A time in seconds, 0 when it is not given.

    Raises:
        InvalidRequest: it is no number of at least 0.
    """
    text = query.get(name, "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidRequest(f"{name} must be a number of seconds", param=name)
    return seconds
