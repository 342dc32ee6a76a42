"""The conversation that a request belongs to, where clients may name it; first match wins:

1. body `conversation_params.conversation_id` (TensorRT-LLM)
2. headers `x-session-id`, `x-correlation-id`, `x-session-affinity`, `x-multi-turn-session-id` (TensorRT-LLM's list, in
   its order), `x-smg-routing-key` (SGLang's router), `x-openwebui-chat-id`
3. body `session_id`, `prompt_cache_key` and its misspelling `promptCacheKey`

Workers with attention data parallelism place a conversation on the rank that holds its KV cache, if they are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from proxy.wire.members import Members

HEADERS: Mapping[bytes, int] = {
    name: rank
    for rank, name in enumerate(
        (
            b"x-session-id",
            b"x-correlation-id",
            b"x-session-affinity",
            b"x-multi-turn-session-id",
            b"x-smg-routing-key",
            b"x-openwebui-chat-id",
        )
    )
}
"""Header name -> its rank."""

BODY_MEMBERS = ("session_id", "prompt_cache_key", "promptCacheKey")


class _ConversationParams(msgspec.Struct):
    conversation_id: str | int | None = None


_CONVERSATION_PARAMS = msgspec.json.Decoder(_ConversationParams)
_NAME = msgspec.json.Decoder(str | int | None)


def conversation_id(members: Members, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The id, or "" when the client names no conversation.

    Args:
        members: of the body as it came: the field policy drops some of those that are looked at.
        headers: names in lower case.
    """
    value = members.get("conversation_params")
    found = _of_params(value) if value is not None else ""
    if not found:
        best = len(HEADERS)
        for name, text in headers:
            if name in HEADERS and HEADERS[name] < best and text.strip():
                found, best = text.strip().decode("latin-1"), HEADERS[name]
    if not found:
        for member in BODY_MEMBERS:
            if member in members and (found := _of_member(members[member])):
                break
    return found


def conversation_params(identifier: str) -> msgspec.Raw:
    """The member `conversation_params` that names a conversation."""
    return msgspec.Raw(msgspec.json.encode({"conversation_id": identifier}))


def _of_params(value: msgspec.Raw) -> str:
    try:
        found = _CONVERSATION_PARAMS.decode(value).conversation_id
    except (msgspec.DecodeError, RecursionError):
        return ""
    return "" if found is None else str(found).strip()


def _of_member(value: msgspec.Raw) -> str:
    try:
        found = _NAME.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return "" if found is None else str(found).strip()
