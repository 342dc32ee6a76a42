"""Tools and the choice of one."""

from __future__ import annotations

from typing import Literal

import msgspec

from proxy.wire.errors import InvalidField, MalformedJSON
from proxy.wire.fields.draft import Draft, decoded, split_member
from proxy.wire.fields.nested import trimmed
from proxy.wire.fields.rule import Rule, Translate
from proxy.wire.members import first_byte, join_array, join_object, split_array

_BRACKET, _BRACE, _QUOTE = b'[{"'
# What bridges from other protocols leave on tools.
_HARMLESS = frozenset(
    {"cache_control", "defer_loading", "eager_input_streaming", "id", "allowed_callers", "input_examples"}
)
_HARMLESS_IN_FUNCTION = _HARMLESS | {"required", "strict", "type"}


class _Function(msgspec.Struct, forbid_unknown_fields=True):
    name: msgspec.Raw
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class _StrictFunction(_Function, forbid_unknown_fields=True):
    strict: bool | None = None


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    function: _Function
    type: Literal["function"] = "function"


class _StrictTool(msgspec.Struct, forbid_unknown_fields=True):
    function: _StrictFunction
    type: Literal["function"] = "function"


_WITHOUT_STRICT = msgspec.json.Decoder(list[_Tool])
_WITH_STRICT = msgspec.json.Decoder(list[_StrictTool])


def _tools(draft: Draft, name: str) -> None:
    value = draft.members[name]
    decoder = _WITH_STRICT if "strict" in draft.accepted.function else _WITHOUT_STRICT
    try:
        # One pass in C finds out that there is nothing to do, which is the rule.
        decoder.decode(value)
    except (msgspec.DecodeError, RecursionError):
        draft.members[name] = _trimmed_tools(draft, name, value)


def _trimmed_tools(draft: Draft, name: str, value: msgspec.Raw) -> msgspec.Raw:
    if first_byte(value) != _BRACKET:
        raise InvalidField(name, f"{name} must be a list", code="invalid_type")
    accepted = draft.accepted
    kept = []
    for at, tool in enumerate(_elements(name, value)):
        here = f"{name}[{at}]"
        rest = split_member(tool, here)
        kind = decoded(rest["type"], f"{here}.type") if "type" in rest else "function"
        if kind != "function":
            raise InvalidField(f"{here}.type", f"{here}.type must be function", code="unsupported_value")
        if "function" not in rest:
            raise InvalidField(f"{here}.function", f"{here}.function is required", code="invalid_type")
        rest["function"] = trimmed(
            draft,
            f"{here}.function",
            rest["function"],
            accepted.function,
            _HARMLESS_IN_FUNCTION,
            label=f"{name}.function",
        )
        whole = msgspec.Raw(join_object(rest))
        kept.append(trimmed(draft, here, whole, accepted.tool, _HARMLESS, label=name))
    draft.dropped[:] = dict.fromkeys(draft.dropped)  # each name once, however many tools there are
    return msgspec.Raw(join_array(kept))


def _elements(name: str, value: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return split_array(value)
    except MalformedJSON:
        raise InvalidField(name, f"{name} cannot be read", code="invalid_type") from None


def _tool_choice(draft: Draft, name: str) -> None:
    value = draft.members[name]
    if first_byte(value) == _QUOTE:
        word = decoded(value, name)
        if word == "any":
            draft.members[name] = msgspec.Raw(b'"required"')
        elif word == "auto" and "tools" not in draft.members:
            # Some versions refuse it without tools; it is what they do by themselves.
            draft.members.pop(name)
        return
    if first_byte(value) != _BRACE:
        return  # the workers say what is wrong
    kind = split_member(value, name).get("type")
    if kind is None or decoded(kind, f"{name}.type") != "function":
        raise InvalidField(
            f"{name}.type",
            f"{name}.type must be function: nothing else is supported",
            code="unsupported_value",
        )
    value = trimmed(draft, name, value, draft.accepted.tool, frozenset())
    members = split_member(value, name)
    if "function" in members:
        accepted = frozenset({"name"})
        function = trimmed(draft, f"{name}.function", members["function"], accepted, _HARMLESS_IN_FUNCTION)
        if function is not members["function"]:
            value = msgspec.Raw(join_object({**members, "function": function}))
    draft.members[name] = value


def _functions(draft: Draft, name: str) -> None:
    value = draft.take(name)
    if first_byte(value) != _BRACKET:
        raise InvalidField(name, f"{name} must be a list", code="invalid_type")
    tools = [join_object({"type": b'"function"', "function": each}) for each in _elements(name, value)]
    if tools:
        draft.put("tools", join_array(tools), source=name)


def _function_call(draft: Draft, name: str) -> None:
    value = draft.take(name)
    if first_byte(value) == _BRACE:
        value = msgspec.Raw(join_object({"type": b'"function"', "function": value}))
    draft.put("tool_choice", value, source=name)


TOOLS = (
    Rule(
        "functions",
        Translate(_functions, "becomes tools"),
        "the older name of OpenAI's API",
        route="chat",
    ),
    Rule(
        "function_call",
        Translate(_function_call, "becomes tool_choice"),
        "the older name of OpenAI's API",
        route="chat",
    ),
    Rule(
        "tools",
        Translate(
            _tools,
            "cache_control, defer_loading, ... are dropped from tools, and strict for workers that do not know it; "
            "other types than function are refused",
        ),
        "its models forbid unknown members",
        route="chat",
    ),
    Rule(
        "tool_choice",
        Translate(
            _tool_choice,
            "any becomes required; auto without tools is dropped; other types than function are refused",
        ),
        route="chat",
        late=True,
    ),
)
