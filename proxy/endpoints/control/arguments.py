"""Small JSON bodies of control routes."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import Receive

from proxy.errors import InvalidRequest
from proxy.middleware.body import read_body

_MOST_BYTES = 1024 * 1024


async def read_arguments(receive: Receive) -> dict[str, Any]:
    """The JSON object in the body of a request; an empty body counts as an empty object.

    Raises:
        InvalidRequest, BodyTooLarge, ClientGone.
    """
    body = await read_body(receive, _MOST_BYTES)
    if not body.strip():
        return {}
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not a JSON object: {error}", code="invalid_json") from None


def read_flag(arguments: dict[str, Any], name: str) -> bool:
    """A member that is true or false, false when it is not given.

    Raises:
        InvalidRequest: it is something else.
    """
    value = arguments.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidRequest(f"{name} must be true or false", code="invalid_type", param=name)
