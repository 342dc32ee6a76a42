"""The bearer token of a request (RFC 6750 section 2.1)."""

from __future__ import annotations

from proxy.lifecycle.headers import Headers


def bearer_token(headers: Headers) -> bytes | None:
    """The token of the `authorization` header; None without one, with another scheme or with several headers."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None
