"""Small complete answers for the endpoints that are not on the hot path."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import Send


async def send_bytes(send: Send, status: int, body: bytes, content_type: bytes | None = None) -> None:
    """Send a whole answer."""
    headers = [(b"content-length", b"%d" % len(body))]
    if content_type is not None:
        headers.append((b"content-type", content_type))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_json(send: Send, status: int, value: Any) -> None:
    """Send `value` as JSON."""
    await send_bytes(send, status, msgspec.json.encode(value), b"application/json")
