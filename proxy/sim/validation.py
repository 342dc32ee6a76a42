"""Strict checks of request bodies, as the worker's pydantic models make them.

Unknown keys, wrong types and nulls for non-optional fields are errors, at the top level and in the nested
models. Unlike pydantic's lax mode, text is never taken for a number or a truth value.
"""

import math
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from proxy.sim.profiles import REQUIRED, Profile

Location = tuple[str | int, ...]
Problem = dict[str, Any]

RESPONSE_FORMAT_TYPES = frozenset(
    {"text", "json", "json_schema", "json_object", "regex", "ebnf", "structural_tag"}
)
SHOWN_INPUT = 200  # characters of the refused value that an error message repeats
MAX_ENUM_VALUES = 1000  # per tool, over all of its parameters


class BodyError(ValueError):
    """The body does not fit the request model; the worker answers 400 ``{"error": text}``."""


def _is_integer(value: Any) -> bool:
    return (type(value) is int) or (type(value) is float and value.is_integer())


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _is_boolean(value: Any) -> bool:
    return type(value) is bool


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_integers(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    try:
        array("i", value)
    except (TypeError, OverflowError):
        return False
    return True


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_prompt(value: Any) -> bool:
    if isinstance(value, str):
        return True
    if not isinstance(value, list):
        return False
    return _is_integers(value) or _is_strings(value) or all(_is_integers(item) for item in value)


def _is_logit_bias(value: Any) -> bool:
    return isinstance(value, dict) and all(
        key.lstrip("-").isdigit() and _is_number(bias) and math.isfinite(bias) and -100 <= bias <= 100
        for key, bias in value.items()
    )


def _is_documents(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, dict) and all(isinstance(text, str) for text in item.values()) for item in value
    )


CHECKS: dict[str, Callable[[Any], bool]] = {
    "string": _is_string,
    "filled_string": lambda value: isinstance(value, str) and bool(value.strip()),
    "conversation_id": lambda value: value is not None and bool(str(value).strip()),
    "strings": _is_strings,
    "string_or_strings": lambda value: isinstance(value, str) or _is_strings(value),
    "integer": _is_integer,
    "positive_integer": lambda value: _is_integer(value) and value >= 1,
    "integers": _is_integers,
    "number": _is_number,
    "unit_number": lambda value: _is_number(value) and 0 <= value <= 1,
    "boolean": _is_boolean,
    "object": lambda value: isinstance(value, dict),
    "list": lambda value: isinstance(value, list),
    "list_or_object": lambda value: isinstance(value, (list, dict)),
    "prompt": _is_prompt,
    "logit_bias": _is_logit_bias,
    "documents": _is_documents,
    "early_stopping": lambda value: _is_boolean(value) or value == "never",
    "schedule_style": lambda value: type(value) is int and value in (0, 1),
    "response_format_type": lambda value: isinstance(value, str) and value in RESPONSE_FORMAT_TYPES,
    "function_type": lambda value: value == "function",
    "thinking_type": lambda value: value in ("enabled", "disabled"),
    "thinking_keep": lambda value: value == "all",
    "thinking_effort": lambda value: value in ("low", "high", "max"),
}


def problem(kind: str, location: Location, message: str, value: Any) -> Problem:
    """One entry of the list that a validation error prints."""
    shown = value if isinstance(value, (int, float, bool, type(None))) else str(value)[:SHOWN_INPUT]
    return {"type": kind, "loc": ("body", *location), "msg": message, "input": shown}


class Validator:
    """Checks bodies against one profile's tables."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def check(self, body: Any, *, chat: bool) -> None:
        """Raise `BodyError` unless ``body`` is an acceptable request of the route."""
        model = "ChatCompletionRequest" if chat else "CompletionRequest"
        if not isinstance(body, dict):
            raise BodyError(
                str([problem("model_attributes_type", (), "Input should be a valid dictionary", body)])
            )
        problems: list[Problem] = []
        self._model(model, body, (), problems)
        problems += _chat_rules(body) if chat else _completion_rules(body)
        if problems:
            raise BodyError(str(problems))

    def _model(self, model: str, value: Mapping[str, Any], at: Location, problems: list[Problem]) -> None:
        fields = self.profile.models[model]
        for name, item in value.items():
            kind = fields.get(name)
            if kind is None:
                problems.append(
                    problem("extra_forbidden", (*at, name), "Extra inputs are not permitted", item)
                )
            elif item is None:
                if not kind.endswith("?"):
                    problems.append(problem("none_not_allowed", (*at, name), f"Input should be {kind}", item))
            else:
                self._value(kind.removesuffix("?"), item, (*at, name), problems)
        problems += [
            problem("missing", (*at, name), "Field required", "")
            for name in sorted(REQUIRED.get(model, frozenset()))
            if name not in value
        ]

    def _value(self, kind: str, value: Any, at: Location, problems: list[Problem]) -> None:
        check = CHECKS.get(kind)
        if check is not None:
            if not check(value):
                problems.append(problem("type", at, f"Input should be {kind}", value))
        elif kind in self.profile.models:
            if isinstance(value, dict):
                self._model(kind, value, at, problems)
            else:
                problems.append(problem("model_type", at, f"Input should be {kind}", value))
        else:
            SPECIAL[kind](self, value, at, problems)

    def tools(self, value: Any, at: Location, problems: list[Problem]) -> None:
        """A list of tools, each of them strict in turn."""
        if not isinstance(value, list):
            problems.append(problem("list_type", at, "Input should be a valid list", value))
            return
        for index, tool in enumerate(value):
            self._value("ChatCompletionToolsParam", tool, (*at, index), problems)
            if _enum_values(tool) > MAX_ENUM_VALUES:
                problems.append(problem("value_error", (*at, index), "Too many enum values", ""))

    def tool_choice(self, value: Any, at: Location, problems: list[Problem]) -> None:
        """One of three words, or the name of a function."""
        if isinstance(value, str):
            if value not in ("none", "auto", "required"):
                problems.append(
                    problem("literal_error", at, "Input should be 'none', 'auto' or 'required'", value)
                )
        else:
            self._value("ChatCompletionNamedToolChoiceParam", value, at, problems)

    def reasoning_effort(self, value: Any, at: Location, problems: list[Problem]) -> None:
        """A word of the profile's list."""
        if not isinstance(value, str) or value not in self.profile.reasoning_efforts:
            accepted = ", ".join(sorted(self.profile.reasoning_efforts))
            problems.append(problem("literal_error", at, f"Input should be one of {accepted}", value))

    def messages(self, value: Any, at: Location, problems: list[Problem]) -> None:
        """Messages: any role and unknown keys pass; wrong types of the known keys do not."""
        if not isinstance(value, list):
            problems.append(problem("list_type", at, "Input should be a valid list", value))
            return
        for index, message in enumerate(value):
            fault = _message_fault(message)
            if fault:
                problems.append(problem("union_error", (*at, index), fault, message))


SPECIAL: dict[str, Callable[[Validator, Any, Location, list[Problem]], None]] = {
    "tools": Validator.tools,
    "tool_choice": Validator.tool_choice,
    "reasoning_effort": Validator.reasoning_effort,
    "messages": Validator.messages,
}


def _message_fault(message: Any) -> str | None:
    if not isinstance(message, dict):
        return "Input should be a valid dictionary"
    role = message.get("role")
    if not isinstance(role, str):
        return "role: Field required"
    if not isinstance(message.get("content"), (str, list, type(None))):
        return "content: Input should be a string or a list of parts"
    if "name" in message and not isinstance(message["name"], str) and role != "tool":
        return "name: Input should be a valid string"
    if message.get("tools") and role != "system":
        return "tools are only accepted on system messages"
    return None


def _enum_values(node: Any) -> int:
    if isinstance(node, dict):
        own = node.get("enum")
        return (len(own) if isinstance(own, list) else 0) + sum(_enum_values(item) for item in node.values())
    if isinstance(node, list):
        return sum(_enum_values(item) for item in node)
    return 0


def _shared_rules(body: Mapping[str, Any]) -> list[Problem]:
    problems = []
    if body.get("stream_options") and not body.get("stream"):
        message = "Stream options can only be defined when stream is true."
        problems.append(problem("value_error", (), message, ""))
    if body.get("suffix"):
        problems.append(problem("value_error", (), "suffix is not supported", ""))
    return problems


def _completion_rules(body: Mapping[str, Any]) -> list[Problem]:
    return _shared_rules(body)


def _chat_rules(body: Mapping[str, Any]) -> list[Problem]:
    problems = _shared_rules(body)
    if "max_tokens" in body and "max_completion_tokens" in body:
        # Both names fill one field: the second one is an extra input.
        problems.append(
            problem("extra_forbidden", ("max_completion_tokens",), "Extra inputs are not permitted", "")
        )
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        problems.append(problem("value_error", (), "logprobs must be true when using top_logprobs", ""))
    if "tool_choice" in body and body["tool_choice"] not in ("none", "auto") and not _has_tools(body):
        # A null counts as a choice here.
        problems.append(problem("value_error", (), "When using `tool_choice`, `tools` must be set.", ""))
    return problems


def _has_tools(body: Mapping[str, Any]) -> bool:
    messages = body.get("messages")
    dynamic = isinstance(messages, list) and any(isinstance(m, dict) and m.get("tools") for m in messages)
    return bool(body.get("tools")) or dynamic
