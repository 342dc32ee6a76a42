"""What a request's head says about its body (RFC 9112 §6.3), and what a head may not say.

llhttp has parsed it strictly: no line folding, no bare line feeds, one content-length that is a number, none of it
beside a transfer-encoding. Here is what llhttp lets pass.
"""

from __future__ import annotations

from proxy.downstream.limits import Limits
from proxy.downstream.refusal import Refusal
from proxy.wire.chunks import BodyReader, ChunkedReader, LengthReader

Headers = list[tuple[bytes, bytes]]


def body_reader(version: str, headers: Headers, limits: Limits) -> BodyReader:
    """Check a head and choose the reader of its body.

    Args:
        version: of HTTP, as `1.1`.
        headers: names in lower case.
        limits: of the body's announced length.

    Raises:
        Refusal: 505, 400 or 413.
    """
    if version not in ("1.0", "1.1"):
        raise Refusal(505, "only HTTP/1.0 and HTTP/1.1 are spoken here", "http_version_not_supported")
    hosts = 0
    length = 0
    chunked = False
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            if chunked or value.strip().lower() != b"chunked" or version == "1.0":
                raise Refusal(400, "unsupported transfer-encoding", "invalid_http")
            chunked = True
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise Refusal(400, "exactly one Host header is required", "invalid_http")
    if length > limits.max_body_bytes:
        raise Refusal.body_too_large(limits.max_body_bytes)
    return ChunkedReader() if chunked else LengthReader(length)


def says_close(headers: Headers) -> bool:
    """Whether a `connection` header asks for the end of the connection."""
    # Twice as fast as any(): this runs once per leg and request.
    for name, value in headers:  # noqa: SIM110 - see above
        if name == b"connection" and b"close" in value.lower():
            return True
    return False
