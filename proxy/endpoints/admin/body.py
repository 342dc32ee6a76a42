"""JSON bodies of the admin routes."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from starlette.types import Receive, Scope

from proxy.errors import ClientGone, InvalidRequest, UnsupportedMediaType

_Body = TypeVar("_Body", bound=msgspec.Struct)


async def read_body(scope: Scope, receive: Receive, kind: type[_Body]) -> _Body:
    """The body of a request; the listener limits its size.

    Raises:
        UnsupportedMediaType: it is not declared as JSON, which forms of other sites cannot do.
        InvalidRequest: it is not JSON of this shape.
        ClientGone: its sender has left.
    """
    declared = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if declared.partition(b";")[0].strip().lower() != b"application/json":
        raise UnsupportedMediaType("content-type must be application/json")
    parts = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the client left")
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    try:
        return msgspec.json.decode(b"".join(parts), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not what this route takes: {error}") from None
