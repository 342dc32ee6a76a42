"""Cutting the message history of a generation leg to its last message (TRT#15366).

The generation worker skips the chat template when it gets token ids, but still loads media from all messages,
takes tools from system messages, and reads the last one for `echo` and for the role. So the history may go only
if nothing in it is needed.
"""

import msgspec

from proxy.wire.errors import MalformedJSON
from proxy.wire.members import Members, equals, first_byte, is_null, split_array

_ABSENT = msgspec.Raw(b"null")


class _Part(msgspec.Struct):
    type: str = ""


class _Message(msgspec.Struct):
    content: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT


_MESSAGE = msgspec.json.Decoder(_Message)
_PARTS = msgspec.json.Decoder(list[_Part])


def last_message(members: Members) -> msgspec.Raw | None:
    """The last message, if the others can be left out of a generation leg that carries token ids; else None.

    They cannot when a message has a content part other than text (media are loaded from messages even when ids
    are given) or tools of its own, with `echo`, or when the shape is unknown. Harmony models are the caller's
    business.
    """
    echo = members.get("echo")
    if echo is not None and not is_null(echo) and not equals(echo, b"false"):
        return None
    try:
        messages = split_array(members["messages"])
        if len(messages) < 2 or not all(_text_only(message) for message in messages):
            return None
    except (KeyError, MalformedJSON, msgspec.DecodeError, RecursionError):
        return None
    return messages[-1]


def _text_only(message: msgspec.Raw) -> bool:
    fields = _MESSAGE.decode(message)
    if not is_null(fields.tools):
        return False
    if first_byte(fields.content) != ord("["):
        return first_byte(fields.content) in b'"n'
    return all(part.type == "text" for part in _PARTS.decode(fields.content))
