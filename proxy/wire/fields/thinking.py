"""How much a model thinks: many dialects, three fields of the workers."""

from __future__ import annotations

import msgspec

from proxy.wire.errors import InvalidField
from proxy.wire.fields.draft import Draft, decoded, split_member
from proxy.wire.fields.nested import trimmed
from proxy.wire.fields.rule import Rename, Rule, Translate, boolean, string
from proxy.wire.members import JSONBytes, equals, first_byte, is_null, join_object

# Words of other engines that no version of the workers knows; which of theirs is meant is not ours to guess.
_FOREIGN_EFFORTS = frozenset({"minimal", "xhigh"})
_SUMMARY = frozenset({"summary", "generate_summary", "format"})


def _template_switch(draft: Draft, name: str) -> None:
    """`enable_thinking: true` beside the messages instead of in `chat_template_kwargs`."""
    boolean(draft, name)
    draft.merge("chat_template_kwargs", {name: draft.take(name)}, source=name)


def _reasoning_effort(draft: Draft, name: str) -> None:
    value = string(draft, name)
    known = draft.accepted.efforts
    if value in _FOREIGN_EFFORTS or (known is not None and value not in known):
        words = ", ".join(sorted(known)) if known else "low, medium, high"
        raise InvalidField(
            name, f"{name} {value!r} is not known to the workers; use {words}", code="unsupported_value"
        )


def _thinking(draft: Draft, name: str) -> None:
    value = draft.members[name]
    if first_byte(value) in b"tf":
        _template_switch(draft, name)
        return
    members = split_member(value, name)
    budget = members.pop("budget_tokens", None)
    if budget is not None:
        if not is_null(budget):
            draft.put("thinking_token_budget", budget, source=f"{name}.budget_tokens")
        draft.members[name] = value = msgspec.Raw(join_object(members))
    unknown = [each for each in members if each not in draft.accepted.thinking and not is_null(members[each])]
    if unknown and draft.unknown != "pass":
        draft.refuse(f"{name}.{unknown[0]}", "is not supported by the workers")
    draft.members[name] = trimmed(draft, name, value, draft.accepted.thinking, frozenset())


def _reasoning(draft: Draft, name: str) -> None:
    nested = draft.object(name)
    draft.take(name)
    for inner, value in nested.items():
        source = f"{name}.{inner}"
        if is_null(value):
            continue
        if inner == "effort":
            draft.put("reasoning_effort", value, source=source)
        elif inner == "enabled":
            _switch(draft, source, value)
        elif inner == "max_tokens":
            draft.put("thinking_token_budget", value, source=source)
        elif inner in _SUMMARY or (inner == "exclude" and equals(value, b"false")):
            draft.dropped.append(source)
        else:
            draft.refuse(source, "has no equivalent on the workers")


def _think(draft: Draft, name: str) -> None:
    value = draft.take(name)
    if first_byte(value) in b"tf":
        _switch(draft, name, value)
    else:
        draft.put("reasoning_effort", value, source=name)


def _switch(draft: Draft, source: str, value: JSONBytes) -> None:
    if not isinstance(decoded(value, source), bool):
        raise InvalidField(source, f"{source} must be true or false", code="invalid_type")
    draft.merge("chat_template_kwargs", {"enable_thinking": value}, source=source)


def _template_arguments(draft: Draft, name: str) -> None:
    added: dict[str, JSONBytes] = dict(draft.object(name))
    draft.take(name)
    if added:
        draft.merge("chat_template_kwargs", added, source=name)


_INTO_KWARGS = "moved into chat_template_kwargs"

THINKING = (
    Rule(
        "reasoning_effort",
        Translate(_reasoning_effort, "kept; words that the workers do not know are refused"),
        "the words differ between engines; field_rules can map them",
        route="chat",
    ),
    Rule(
        "reasoning",
        Translate(
            _reasoning,
            "effort becomes reasoning_effort, enabled goes into chat_template_kwargs, "
            "max_tokens becomes thinking_token_budget; exclude: true is refused",
        ),
        "OpenRouter's form",
        route="chat",
    ),
    Rule(
        "thinking",
        Translate(
            _thinking,
            f"true and false are {_INTO_KWARGS}; budget_tokens becomes thinking_token_budget; "
            "other unknown members are refused",
        ),
        "Anthropic's form",
        route="chat",
    ),
    Rule("enable_thinking", Translate(_template_switch, _INTO_KWARGS), "Qwen's switch", route="chat"),
    Rule("chat_template_args", Translate(_template_arguments, _INTO_KWARGS), "Dynamo's name", route="chat"),
    Rule(
        "think",
        Translate(
            _think, "true and false go into chat_template_kwargs as enable_thinking, words become effort"
        ),
        "Ollama's switch",
        route="chat",
    ),
    Rule("thinking_budget", Rename("thinking_token_budget"), "Qwen's name"),
)
