"""Tool calls in messages: the form of OpenAI's API, and the older `function_call`."""

from __future__ import annotations

from typing import Literal

import msgspec

from proxy.wire.errors import InvalidField, MalformedJSON
from proxy.wire.fields.draft import split_member
from proxy.wire.members import Members, equals, first_byte, is_null, join_array, join_object, split_array

_QUOTE, _BRACE = b'"{'
_FUNCTION = msgspec.Raw(b'"function"')
_FUNCTION_ROLE = b'"function"'
_OF_CALL = frozenset({"id", "type", "function"})
_OF_FUNCTION = frozenset({"name", "arguments"})


class _Function(msgspec.Struct, forbid_unknown_fields=True):
    name: msgspec.Raw
    arguments: str


class NormalCall(msgspec.Struct, forbid_unknown_fields=True):
    """A tool call that workers take as it is."""

    id: str
    function: _Function
    type: Literal["function"]


_NORMAL_CALLS = msgspec.json.Decoder(list[NormalCall])


def normal_calls(here: str, value: msgspec.Raw, dropped: dict[str, None]) -> msgspec.Raw:
    """A list of tool calls with `id`, `type` and `function{name, arguments}` and nothing else.

    A missing id is made of the position, arguments that are no string are encoded into one.

    Args:
        here: where the message is.
        value: the list; returned as it is when there is nothing to do.
        dropped: collects names.

    Raises:
        InvalidField: a call is not an object or has a type other than function.
    """
    try:
        _NORMAL_CALLS.decode(value)
    except (msgspec.DecodeError, RecursionError):
        pass
    else:
        return value
    try:
        calls = split_array(value)
    except MalformedJSON:
        raise InvalidField(f"{here}.tool_calls", "tool_calls cannot be read", code="invalid_type") from None
    return msgspec.Raw(
        join_array([_normal(f"{here}.tool_calls[{at}]", call, dropped) for at, call in enumerate(calls)])
    )


def _normal(here: str, value: msgspec.Raw, dropped: dict[str, None]) -> msgspec.Raw:
    call = split_member(value, here)
    kind = call.get("type", _FUNCTION)
    if not is_null(kind) and not equals(kind, _FUNCTION_ROLE):
        raise InvalidField(f"{here}.type", f"{here}.type must be function", code="unsupported_value")
    if "function" not in call:
        raise InvalidField(f"{here}.function", f"{here}.function is required", code="invalid_type")
    function = split_member(call["function"], f"{here}.function")
    dropped.update((f"tool_calls.{name}", None) for name in call if name not in _OF_CALL)
    dropped.update((f"tool_calls.function.{name}", None) for name in function if name not in _OF_FUNCTION)
    identifier = call.get("id")
    normal: Members = {
        "id": _made_up_id(here) if identifier is None or is_null(identifier) else identifier,
        "type": _FUNCTION,
        "function": msgspec.Raw(join_object(_normal_function(function))),
    }
    return msgspec.Raw(join_object(normal))


def _normal_function(function: Members) -> Members:
    arguments = function.get("arguments")
    if arguments is None or is_null(arguments):
        text = msgspec.Raw(b'"{}"')
    elif first_byte(arguments) == _QUOTE:
        text = arguments
    else:
        text = msgspec.Raw(msgspec.json.encode(bytes(arguments).decode(errors="replace")))
    return {**({"name": function["name"]} if "name" in function else {}), "arguments": text}


def _made_up_id(here: str) -> msgspec.Raw:
    # The same in every turn of a conversation, since it may be part of the prompt.
    digits = "_".join("".join(each if each.isdigit() else " " for each in here).split())
    return msgspec.Raw(b'"call_%b"' % digits.encode())


class FunctionCalls:
    """Turns `function_call` of assistants into tool calls, and the messages of role `function` that answer them."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: msgspec.Raw | None = None

    def translated(self, here: str, message: Members) -> Members:
        """The message itself when there is nothing to do, else a changed copy. To be called in order.

        Raises:
            InvalidField: an answer without a call, or a call that is not an object.
        """
        role = message.get("role")
        call = message.get("function_call")
        if call is not None:
            rest = {name: value for name, value in message.items() if name != "function_call"}
            if is_null(call):
                return rest
            if first_byte(call) != _BRACE or not is_null(message.get("tool_calls")):
                param = f"{here}.function_call"
                raise InvalidField(param, f"{param} must be an object, without tool_calls")
            self._last = _made_up_id(here)
            tool_call = join_object({"id": self._last, "type": _FUNCTION, "function": call})
            rest.pop("tool_calls", None)
            return {**rest, "tool_calls": msgspec.Raw(join_array((tool_call,)))}
        if role is not None and equals(role, _FUNCTION_ROLE):
            if self._last is None:
                raise InvalidField(here, f"{here}: a function's answer needs a function_call before it")
            answer = {name: value for name, value in message.items() if name not in ("role", "name")}
            return {"role": msgspec.Raw(b'"tool"'), "tool_call_id": self._last, **answer}
        return message
