"""Messages: what workers refuse or silently lose in them.

Message models allow unknown keys, so most pass. Exceptions: `name: null` is a 400 on user and assistant messages;
a tool call with any unmodelled key loses the whole list in some versions; parts of unknown types are a 400. Training
frameworks hang the token ids of each turn on its message, which TensorRT-LLM workers ignore: with them a conversation
grows quadratically.

One pass in C over the messages finds out whether there is anything to do, in 45 us for 160 KB (a substring search
for a single name takes longer). Only then are they taken apart, and only changed ones written anew.
"""

from __future__ import annotations

import msgspec

from proxy.wire.errors import InvalidField, MalformedJSON
from proxy.wire.fields.draft import Draft, decoded, split_member
from proxy.wire.fields.rule import Rule, Translate
from proxy.wire.fields.tool_calls import FunctionCalls, NormalCall, normal_calls
from proxy.wire.members import Members, first_byte, is_null, join_array, join_object, split_array

_BRACKET, _BRACE = b"[{"

BUNDLE = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts")
"""Token ids, log probabilities and routing of a turn, as NeMo Gym keeps them on its message."""

REASONING = ("reasoning_content", "reasoning")

UNKNOWN_PARTS = frozenset(
    {
        "file", "input_file", "refusal", "thinking", "redacted_thinking", "tool_reference", "input_text", "output_text",
        "input_image", "document", "tool_use", "tool_result",
    }
)  # fmt: skip
"""Types of content parts that workers answer with a 400."""


class _Message(msgspec.Struct):
    """A message without anything to do. What is null here must be absent or null."""

    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")
    name: str = ""
    tool_calls: list[NormalCall] | None = None
    function_call: None = None
    prompt_token_ids: None = None
    generation_token_ids: None = None
    generation_log_probs: None = None
    routed_experts: None = None


class _OldMessage(_Message):
    """The same for workers that refuse reasoning in messages."""

    reasoning_content: None = None
    reasoning: None = None


class _Part(msgspec.Struct):
    type: str = ""


_MESSAGES = msgspec.json.Decoder(list[_Message])
_OLD_MESSAGES = msgspec.json.Decoder(list[_OldMessage])
_PARTS = msgspec.json.Decoder(list[_Part])


def rewrite_messages(draft: Draft, name: str, developer_as_system: frozenset[str] = frozenset()) -> None:
    """Apply the rules of messages.

    Args:
        draft: the request.
        name: `messages`.
        developer_as_system: the models whose chat templates know no role `developer`.

    Raises:
        InvalidField: a message cannot be served.
    """
    value = draft.members[name]
    rename = bool(developer_as_system) and _model(draft) in developer_as_system
    plain = not rename and messages_are_plain(value, reasoning=draft.accepted.reasoning_in_messages)
    if plain or first_byte(value) != _BRACKET:
        return
    try:
        elements = split_array(value)
    except MalformedJSON:
        raise InvalidField(name, f"{name} cannot be read", code="invalid_type") from None
    calls = FunctionCalls()
    dropped: dict[str, None] = {}
    changed = False
    for at, element in enumerate(elements):
        if first_byte(element) != _BRACE:
            continue  # the workers say what is wrong
        here = f"{name}[{at}]"
        message = split_member(element, here)
        written = _rewritten(draft, here, message, calls, dropped)
        role = message.get("role")
        if rename and role is not None and decoded(role, here) == "developer":
            written = {**written, "role": msgspec.Raw(b'"system"')}
        if written is not message:
            elements[at] = msgspec.Raw(join_object(written))
            changed = True
    if changed:
        draft.members[name] = msgspec.Raw(join_array(elements))
        draft.dropped += [f"{name}.{inner}" for inner in dropped]


def _model(draft: Draft) -> str:
    model = draft.members.get("model")
    return str(decoded(model, "model")) if model is not None else ""


def messages_are_plain(value: msgspec.Raw, *, reasoning: bool) -> bool:
    """Whether no message needs a change, for workers that take `reasoning` in messages or not."""
    decoder = _MESSAGES if reasoning else _OLD_MESSAGES
    try:
        messages = decoder.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return False
    for message in messages:
        if message.role == "function":
            return False
        if first_byte(message.content) == _BRACKET and _has_unknown_parts(message.content):
            return False
    return True


def _has_unknown_parts(content: msgspec.Raw) -> bool:
    try:
        return not UNKNOWN_PARTS.isdisjoint(part.type for part in _PARTS.decode(content))
    except (msgspec.DecodeError, RecursionError):
        return False  # the workers say what is wrong


def _rewritten(
    draft: Draft, here: str, message: Members, calls: FunctionCalls, dropped: dict[str, None]
) -> Members:
    """The message itself when nothing is to be done, else a changed copy."""
    written = message
    content = message.get("content")
    if content is not None and first_byte(content) == _BRACKET and _has_unknown_parts(content):
        _refuse_part(here, content)
    gone = [name for name in BUNDLE if name in message]
    if not draft.accepted.reasoning_in_messages:
        gone += [name for name in REASONING if name in message]
    if "name" in message and is_null(message["name"]):
        gone.append("name")
    if gone:
        written = {name: value for name, value in message.items() if name not in gone}
        dropped.update((name, None) for name in gone if not is_null(message[name]))
    written = calls.translated(here, written)
    tool_calls = written.get("tool_calls")
    if tool_calls is not None and first_byte(tool_calls) == _BRACKET:
        normal = normal_calls(here, tool_calls, dropped)
        if normal is not tool_calls:
            written = {**written, "tool_calls": normal}
    return written


def _refuse_part(here: str, content: msgspec.Raw) -> None:
    for at, part in enumerate(_PARTS.decode(content)):
        if part.type in UNKNOWN_PARTS:
            param = f"{here}.content[{at}]"
            message = f"{param}: content parts of type {part.type} are not supported by the workers"
            raise InvalidField(param, message, code="unsupported_value")


def messages_rule(developer_as_system: frozenset[str] = frozenset()) -> Rule:
    """The row of `messages`."""
    return Rule(
        "messages",
        Translate(
            lambda draft, name: rewrite_messages(draft, name, developer_as_system),
            "name: null is dropped, tool_calls are brought into the form of OpenAI's API, function_call becomes one, "
            f"{', '.join(BUNDLE)} are dropped (for old workers also {' and '.join(REASONING)}), "
            "parts of unknown types are refused",
        ),
        "some shapes are refused by workers, others are lost or only take room",
        route="chat",
    )
