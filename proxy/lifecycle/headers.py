"""Which headers pass between clients and workers. Names are in lower case, as ASGI and the worker client give them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.upstream.head import ResponseHead

Headers = list[tuple[bytes, bytes]]

_TO_WORKER = frozenset({b"traceparent", b"tracestate"})
# Set by the proxy alone, or about the client's own connection to a worker.
_NEVER_TO_WORKER = frozenset({b"x-trtllm-disagg-auth", b"x-trtllm-msgpack"})
_TO_CLIENT = frozenset({b"content-type", b"content-encoding", b"retry-after", b"server-timing"})
_PREFIX = b"x-trtllm-"

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


def to_workers(headers: Headers, request_id: str) -> bytes:
    """Encode the header lines of both legs: the request id, trace context and `x-trtllm-*`.

    The client's `authorization` and `cookie` are its own business with the proxy and never pass.
    """
    lines = [b"x-request-id: %b\r\n" % request_id.encode()]
    lines += [
        b"%b: %b\r\n" % (name, value)
        for name, value in headers
        if name in _TO_WORKER or (name.startswith(_PREFIX) and name not in _NEVER_TO_WORKER)
    ]
    return b"".join(lines)


def to_client(head: ResponseHead, others: Headers) -> Headers:
    """The worker's headers that a client gets; never its server, date, cookies or hop-by-hop headers."""
    kept = [(name, value) for name, value in head.headers if name in _TO_CLIENT or name.startswith(_PREFIX)]
    return kept + others


def acceptable_request_id(value: bytes) -> bool:
    """Whether a client's request id may be used: it travels in headers and logs."""
    return _REQUEST_ID.fullmatch(value) is not None
