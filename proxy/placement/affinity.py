"""Keys that keep the requests of a conversation together, computed from what the client sent. Pure.

A conversation that the client names is known by that name (`proxy.wire.fields.conversation` says where clients may
name it). Otherwise the first messages identify it: turn n+1 begins with all messages of turn n.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

from proxy.placement.policy import Needs, Placement
from proxy.wire.errors import MalformedJSON
from proxy.wire.fields.conversation import conversation_id
from proxy.wire.members import Members, first_byte, split_array

_BYTES_PER_TOKEN = 4
# Of a prompt that is one text or one list of ids only the beginning is known to stay.
_PROMPT_BYTES = 512
_BRACKET = ord("[")
# Quotes inside strings are escaped, so this is a member; that of a nested object does no harm.
_from_the_user = re.compile(rb'"role"\s*:\s*"user"').search


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
    name = conversation_id(members, headers)
    return _hash(name.encode()) if name else None


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


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
