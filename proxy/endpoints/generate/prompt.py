"""The prompt and the small members that both shapes have. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.errors import InvalidRequest
from proxy.lifecycle.headers import acceptable_request_id
from proxy.wire.errors import MalformedJSON
from proxy.wire.members import Members, first_byte, is_null, split_object

_COMMA, _QUOTE = b",", ord('"')
_starts_with_number = re.compile(rb"\[[ \t\r\n]*[-0-9]").match


def split_request(body: bytes) -> Members:
    """The members of a request, without those that are null.

    Raises:
        InvalidRequest: no JSON object.
    """
    try:
        members = split_object(body)
    except MalformedJSON as error:
        raise InvalidRequest(f"the body is not a JSON object: {error}", code="invalid_json") from None
    return {name: value for name, value in members.items() if not is_null(value)}


def take_id(members: Members, name: str) -> str | None:
    """The request's id, which abort names it by.

    Raises:
        InvalidRequest: it is not fit for headers and logs.
    """
    if name not in members:
        return None
    value = _decoded(members.pop(name))
    if isinstance(value, str) and acceptable_request_id(value.encode()):
        return value
    message = f"{name} must be 1 to 128 letters, digits, dots, underscores and hyphens"
    raise InvalidRequest(message, param=name)


def take_flag(members: Members, name: str) -> bool:
    """A member that is true or false; false when it is absent.

    Raises:
        InvalidRequest: it is something else.
    """
    value = _decoded(members.pop(name, msgspec.Raw(b"false")))
    if isinstance(value, bool):
        return value
    raise InvalidRequest(f"{name} must be true or false", code="invalid_type", param=name)


def refuse_unless_neutral(members: Members, neutral: Mapping[str, Sequence[Any]]) -> None:
    """Take out members that ask for nothing.

    Args:
        members: of the request.
        neutral: names of what no worker can do, each with the values that do not ask for it.

    Raises:
        InvalidRequest: one of them asks for it.
    """
    for name, values in neutral.items():
        if name in members and not is_one_of(members.pop(name), values):
            raise InvalidRequest(f"{name} is not supported", code="unsupported_field", param=name)


def count_ids(ids: msgspec.Raw) -> int:
    """How many numbers stand in a flat list."""
    return bytes(ids).count(_COMMA) + 1


def require_ids(name: str, value: msgspec.Raw) -> msgspec.Raw:
    """One flat list of ids.

    Raises:
        InvalidRequest: something else; workers check the numbers.
    """
    if _starts_with_number(value):
        return value
    message = f"{name} must be one list of token ids that is not empty; batches are not supported"
    raise InvalidRequest(message, param=name)


def require_text(name: str, value: msgspec.Raw) -> msgspec.Raw:
    """One string.

    Raises:
        InvalidRequest: something else.
    """
    if first_byte(value) == _QUOTE:
        return value
    raise InvalidRequest(f"{name} must be one string; batches are not supported", param=name)


def is_one_of(value: msgspec.Raw, values: Sequence[Any]) -> bool:
    """Compare an encoded value, which may be anything; true is not 1."""
    found = _decoded(value)
    return any(found == each and isinstance(found, bool) == isinstance(each, bool) for each in values)


def _decoded(value: msgspec.Raw) -> Any:
    """None for what cannot be read: raw slices are not checked inside."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return None
