"""One request while the rules work on it."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import msgspec

from proxy.wire.errors import InvalidField
from proxy.wire.fields.accepted import Accepted
from proxy.wire.members import JSONBytes, Members, is_null, join_object, split_object

Unknown = Literal["drop", "reject", "pass"]
"""What becomes of fields that neither the workers nor the tables know."""


class Draft:
    """The members as they will be sent, changed rule by rule.

    Attributes:
        members: without nulls, in the client's order.
        chat: the route.
        accepted: what all workers of the pool accept.
        route: the top-level members that may be sent.
        unknown: what becomes of fields that nobody knows.
        dropped: names of what was left out.
        asked: names of what the client wants in its answer.
        waiting: members that have been put in by a rule and may have rules of their own.
    """

    __slots__ = ("accepted", "asked", "chat", "dropped", "members", "route", "unknown", "waiting")

    def __init__(
        self, members: Members, *, chat: bool, accepted: Accepted, route: frozenset[str], unknown: Unknown
    ) -> None:
        self.members = members
        self.chat = chat
        self.accepted = accepted
        self.route = route
        self.unknown = unknown
        self.dropped: list[str] = []
        self.asked: list[str] = []
        self.waiting: list[str] = []

    def drop(self, name: str) -> None:
        """Leave a member out and note its name."""
        self.members.pop(name, None)
        self.dropped.append(name)

    def take(self, name: str) -> msgspec.Raw:
        """Remove a member because something else is put in for it."""
        return self.members.pop(name)

    def put(self, name: str, value: JSONBytes, *, source: str) -> None:
        """Put a member in for another one.

        Raises:
            InvalidField: the client has set it to something else.
        """
        raw = value if isinstance(value, msgspec.Raw) else msgspec.Raw(bytes(value))
        present = self.members.get(name)
        if present is not None and bytes(present) != bytes(raw):
            raise InvalidField(source, f"{source} contradicts {name}", code="conflicting_fields")
        if not is_null(raw):
            self.members[name] = raw
            self.waiting.append(name)

    def put_value(self, name: str, value: Any, *, source: str) -> None:
        """`put` for a Python value."""
        self.put(name, msgspec.json.encode(value), source=source)

    def merge(self, name: str, added: dict[str, JSONBytes], *, source: str) -> None:
        """Add members to an object member, which is made if there is none.

        Raises:
            InvalidField: it is not an object or has one of them with another value.
        """
        present = self.object(name) if name in self.members else {}
        for key, value in added.items():
            if key in present and bytes(present[key]) != bytes(value):
                raise InvalidField(source, f"{source} contradicts {name}.{key}", code="conflicting_fields")
        self.members[name] = msgspec.Raw(join_object({**present, **added}))
        self.waiting.append(name)

    def value(self, name: str) -> Any:
        """A member, decoded; for those that are small.

        Raises:
            InvalidField: it is not valid JSON inside.
        """
        return decoded(self.members[name], name)

    def forbid(self, name: str) -> bool:
        """Decide about a member that nobody knows: whether it goes (true) or is passed on.

        Raises:
            InvalidField: it is refused.
        """
        if self.unknown == "reject":
            raise InvalidField(name, f"{name} is not a field that the workers know", code="unknown_field")
        return self.unknown == "drop"

    def object(self, name: str) -> Members:
        """A member that has to be an object, split.

        Raises:
            InvalidField: it is something else.
        """
        return split_member(self.members[name], name)

    def refuse(self, name: str, why: str) -> NoReturn:
        """Refuse the request for one of its members.

        Raises:
            InvalidField: always.
        """
        raise InvalidField(name, f"{name} {why}", code="unsupported_field")


def decoded(value: JSONBytes, name: str) -> Any:
    """An encoded value as a Python value.

    Raises:
        InvalidField: it is not valid JSON (raw slices are not checked inside), or nested too deeply.
    """
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidField(name, f"{name} cannot be read", code="invalid_type") from None


def split_member(value: msgspec.Raw, name: str) -> Members:
    """An encoded value that has to be an object, split.

    Raises:
        InvalidField: it is something else.
    """
    try:
        return split_object(value)
    except ValueError:
        raise InvalidField(name, f"{name} must be an object", code="invalid_type") from None
