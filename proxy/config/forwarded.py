"""Which request headers an operator may have passed on to the workers."""

from __future__ import annotations

import re

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
# RFC 9110 section 7.6.1, and what frames, encodes or addresses a message: about one connection or set by the proxy.
_NEVER = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
        "x-trtllm-disagg-auth",
        "x-trtllm-msgpack",
    }
)


def parse_forwarded_header(name: str) -> str:
    """Return a header's name in lower case.

    Raises:
        ValueError: it is none, or one that never passes through a proxy.
    """
    lowered = name.lower()
    if not _NAME.fullmatch(lowered):
        raise ValueError(f"{name!r} is not the name of a header")
    if lowered in _NEVER:
        raise ValueError(f"{lowered} is never passed on: it is the proxy's own or concerns one connection")
    return lowered
