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
# Names of no headers, or of such as never pass.
_ORDINARY_OPTIONS = frozenset({b"keep-alive", b"close", b"upgrade", b"te", b"http2-settings"})

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


def to_workers(
    headers: Headers, request_id: str, *, forwarded: frozenset[bytes] = frozenset(), own: bytes = b""
) -> bytes:
    """Encode the header lines of both legs: the request id, trace context, `x-trtllm-*` and what is asked for.

    The client's `authorization` and `cookie` are its own business with the proxy and never pass, unless the
    operator names them. What the client's `connection` header names is about that connection (RFC 9110 §7.6.1).

    Args:
        headers: of the client.
        request_id: of the request.
        forwarded: further names to pass on.
        own: header lines of the proxy itself.
    """
    lines = [b"x-request-id: %b\r\n" % request_id.encode()]
    dropped: set[bytes] = set()
    for name, value in headers:
        if name in _TO_WORKER or name in forwarded:
            lines.append(b"%b: %b\r\n" % (name, value))
        elif name.startswith(_PREFIX):
            if name not in _NEVER_TO_WORKER:
                lines.append(b"%b: %b\r\n" % (name, value))
        elif name == b"connection":
            dropped.update(option.strip() for option in value.lower().split(b","))
    if dropped - _ORDINARY_OPTIONS:
        lines[1:] = [line for line in lines[1:] if line.partition(b":")[0] not in dropped]
    if own:
        lines.append(own)
    return b"".join(lines)


def to_client(head: ResponseHead, others: Headers) -> Headers:
    """The worker's headers that a client gets; never its server, date, cookies or hop-by-hop headers."""
    kept = [(name, value) for name, value in head.headers if name in _TO_CLIENT or name.startswith(_PREFIX)]
    return kept + others


def acceptable_request_id(value: bytes) -> bool:
    """Whether a client's request id may be used: it travels in headers and logs."""
    return _REQUEST_ID.fullmatch(value) is not None
