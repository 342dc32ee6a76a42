"""Rules of the operator's own, from the configuration. They come before the built-in tables, in every dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from proxy.wire.fields.accepted import INTERNAL
from proxy.wire.fields.draft import Draft
from proxy.wire.fields.rule import Route
from proxy.wire.members import is_null

Action = Literal["drop", "rename", "default", "map", "refuse"]

# Of a request without these there is nothing left, and the hand-off is the proxy's.
_NEVER = INTERNAL | {"messages", "prompt"}
# action -> the one key that says how
_NEEDED: Mapping[str, str] = {"rename": "to", "default": "value", "map": "values"}


class FieldRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule.

    Attributes:
        field: name of a top-level member.
        action: `drop` it, `rename` it, set a `default` where it is absent, `map` some of its values to others, or
            `refuse` requests that have it.
        to: the new name, for `rename`.
        value: the default.
        values: value -> value, for `map`; a null drops the member.
        message: what a refused client is told.
        route: where the rule holds.
    """

    field: str
    action: Action
    to: str | None = None
    value: Any = None
    values: dict[str, Any] | None = None
    message: str | None = None
    route: Route = "both"

    def __post_init__(self) -> None:
        """Check what belongs together.

        Raises:
            ValueError: a key is missing or has no meaning for the action, or the field is the proxy's own.
        """
        needed = _NEEDED.get(self.action)
        if needed is not None and getattr(self, needed) is None:
            raise ValueError(f"action {self.action} needs the key {needed}")
        for key in _NEEDED.values():
            if key != needed and getattr(self, key) is not None:
                raise ValueError(f"the key {key} has no meaning for action {self.action}")
        if self.message is not None and self.action != "refuse":
            raise ValueError("the key message has a meaning for action refuse only")
        for name in (self.field, self.to):
            if name is not None and (name in _NEVER or not name):
                raise ValueError(f"the field {name!r} cannot have rules")

    def plain(self) -> dict[str, Any]:
        """As in the configuration, without what is not set."""
        return {
            field.name: getattr(self, field.name)
            for field in msgspec.structs.fields(self)
            if getattr(self, field.name) != field.default
        }

    @property
    def text(self) -> str:
        """What it does, in words."""
        match self.action:
            case "rename":
                return f"renamed to {self.to}"
            case "default":
                return f"set to {_shown(self.value)} where absent"
            case "map":
                return f"values replaced: {_shown(self.values)}"
            case "refuse":
                return f"refused: {self.message or 'not served here'}"
        return "dropped"


class OwnRules:
    """The rules of one route, ready for use.

    Args:
        rules: all that are configured.
        chat: the route.
    """

    def __init__(self, rules: Iterable[FieldRule], *, chat: bool) -> None:
        other = "completions" if chat else "chat"
        self.rules = tuple(rule for rule in rules if rule.route != other)
        self._defaults = {
            rule.field: msgspec.Raw(msgspec.json.encode(rule.value))
            for rule in self.rules
            if rule.action == "default"
        }
        self.names = frozenset(rule.field for rule in self.rules)

    def apply(self, draft: Draft) -> None:
        """Apply them in their order.

        Raises:
            InvalidField: a rule refuses the request, or a name is taken already.
        """
        for rule in self.rules:
            name = rule.field
            if rule.action == "default":
                if is_null(draft.members.get(name)):
                    draft.members[name] = self._defaults[name]
            elif not is_null(draft.members.get(name)):
                self._apply(draft, rule)

    def _apply(self, draft: Draft, rule: FieldRule) -> None:
        name = rule.field
        match rule.action:
            case "drop":
                draft.drop(name)
            case "rename" if rule.to is not None:
                draft.put(rule.to, draft.take(name), source=name)
            case "refuse":
                draft.refuse(name, rule.message or "is not served here")
            case "map" if rule.values is not None:
                self._map(draft, name, rule.values)

    def _map(self, draft: Draft, name: str, values: Mapping[str, Any]) -> None:
        value = draft.value(name)
        key = value if isinstance(value, str) else _shown(value)
        if key not in values:
            return
        if values[key] is None:
            draft.drop(name)
        else:
            draft.members[name] = msgspec.Raw(msgspec.json.encode(values[key]))


def _shown(value: Any) -> str:
    return str(msgspec.json.encode(value), "utf-8")
