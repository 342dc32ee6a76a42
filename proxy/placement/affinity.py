"""Keys that keep the requests of a conversation together, computed from what the client sent. Pure.

Where the client may name its conversation, first match wins:

1. body `conversation_params.conversation_id` (TensorRT-LLM)
2. headers `x-session-id`, `x-correlation-id`, `x-session-affinity`, `x-multi-turn-session-id` (TensorRT-LLM's list, in
   its order), `x-smg-routing-key` (SGLang's router), `x-openwebui-chat-id`
3. body `session_id`, `prompt_cache_key` (OpenAI)

Otherwise the first messages identify it: turn n+1 begins with all messages of turn n.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

from proxy.placement.policy import Needs, Placement
from proxy.wire.errors import MalformedJSON
from proxy.wire.members import Members, first_byte, split_array

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
BODY_MEMBERS = ("session_id", "prompt_cache_key")

_BYTES_PER_TOKEN = 4
# Of a prompt that is one text or one list of ids only the beginning is known to stay.
_PROMPT_BYTES = 512
_BRACKET = ord("[")
# Quotes inside strings are escaped, so this is a member; that of a nested object does no harm.
_from_the_user = re.compile(rb'"role"\s*:\s*"user"').search


class _ConversationParams(msgspec.Struct):
    conversation_id: str | int | None = None


_CONVERSATION_PARAMS = msgspec.json.Decoder(_ConversationParams)
_NAME = msgspec.json.Decoder(str | int | None)


def read_placement(
    members: Members, headers: Iterable[tuple[bytes, bytes]], needs: Needs, size: int
) -> Placement:
    """What the policies need to know of a request.

    Args:
        members: of the body as it came: the field policy drops some of those that are looked at.
        headers: names in lower case.
        needs: of all policies together.
        size: of the body, bytes.
    """
    placement = Placement()
    if needs & Needs.ID:
        placement.id_key = id_key(members, headers)
    if needs & Needs.PREFIX or (needs & Needs.PREFIX_WITHOUT_ID and placement.id_key is None):
        placement.prefix_key = prefix_key(members)
    if needs & Needs.TOKENS:
        placement.tokens = size // _BYTES_PER_TOKEN
    return placement


def id_key(members: Members, headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """The key of the conversation that the client names, or None."""
    name = _conversation_id(members.get("conversation_params")) or _from_headers(headers)
    if not name:
        for member in BODY_MEMBERS:
            value = members.get(member)
            name = _name(value) if value is not None else b""
            if name:
                break
    return _hash(name) if name else None


def prefix_key(members: Members) -> int | None:
    """The key of the beginning of the prompt, or None without one.

    That is the first two messages, or the first alone if it comes from the user: the second is then an answer, which
    the first turn does not have yet.
    """
    messages = members.get("messages")
    if messages is None:
        prompt = members.get("prompt")
        return None if prompt is None else _hash(bytes(memoryview(prompt)[:_PROMPT_BYTES]).rstrip(b'"]'))
    if first_byte(messages) != _BRACKET:
        return None
    try:
        elements = split_array(messages)
    except MalformedJSON:
        return None  # the workers say what is wrong
    if not elements:
        return None
    first = bytes(elements[0])
    if len(elements) == 1 or _from_the_user(first):
        return _hash(first)
    return _hash(b"%b,%b" % (first, bytes(elements[1])))


def _conversation_id(value: msgspec.Raw | None) -> bytes:
    if value is None:
        return b""
    try:
        found = _CONVERSATION_PARAMS.decode(value).conversation_id
    except (msgspec.DecodeError, RecursionError):
        return b""
    return b"" if found is None else str(found).encode()


def _from_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    found, best = b"", len(HEADERS)
    for name, value in headers:
        if name in HEADERS and HEADERS[name] < best and value:
            found, best = value, HEADERS[name]
    return found


def _name(value: msgspec.Raw) -> bytes:
    try:
        found = _NAME.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return b""
    return b"" if found is None else str(found).encode()


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
