"""Take hand-off members out of an answer before a client sees it, and leave every other byte alone.

Workers put `disaggregated_params` into each choice and `prompt_token_ids` or `prompt_token_ids_b64` at the
top level of non-streamed answers; they are the workers' business and can be hundreds of kilobytes.

Workers write compact JSON, so each of these members is normally found by its text and cut out; decoding the
rest once more shows whether they were the right ones. An answer with blanks, duplicate names or anything else
out of the ordinary is walked through member by member.
"""

from collections.abc import Iterator

import msgspec

from proxy.wire.errors import MalformedJSON
from proxy.wire.members import split_object
from proxy.wire.spans import cut_ranges, element_spans, member_spans

_TOP_LEVEL = frozenset({"prompt_token_ids", "prompt_token_ids_b64", "disaggregated_params"})
_IN_CHOICE = frozenset({"disaggregated_params"})


_PARAMETERS = b'"disaggregated_params":'
_TOKEN_IDS = b'"prompt_token_ids":'
_TOKEN_IDS_B64 = b'"prompt_token_ids_b64":'
_BRACE, _COMMA = b"{,"
_BEHIND = b",}"

_ABSENT = msgspec.Raw()  # no JSON value is empty


class _Choice(msgspec.Struct):
    disaggregated_params: msgspec.Raw = _ABSENT


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    disaggregated_params: msgspec.Raw = _ABSENT
    prompt_token_ids: msgspec.Raw = _ABSENT
    prompt_token_ids_b64: msgspec.Raw = _ABSENT


_ANSWER = msgspec.json.Decoder(_Answer)


def clean_answer(source: bytes) -> bytes:
    """Remove hand-off members from a worker's JSON answer.

    An answer that is not a JSON object is none of ours and stays as it is.
    """
    if _names_none(source):
        return source
    cleaned = _cut_by_text(source)
    return _cut_by_walk(source) if cleaned is None else cleaned


def _names_none(source: bytes) -> bool:
    """Whether there is surely no hand-off member in it. (`rfind` is faster than `in` for long names.)"""
    return (
        source.rfind(b"disaggregated_params") < 0
        and source.rfind(b"prompt_token_ids") < 0
        and source.rfind(b"\\u00") < 0  # a letter of a name may be escaped
    )


def _cut_by_text(source: bytes) -> bytes | None:
    """Remove the members of a compact answer; None when in doubt."""
    try:
        members = _hand_off_members(_ANSWER.decode(source))
        if not members:
            return source
        rest = _without(source, members)
        # Each cut took one member away. If one was taken from a place where the client may see it, or a name
        # stands twice, then a member is left where none should be.
        if rest is None or _names_none(rest) or not _hand_off_members(_ANSWER.decode(rest)):
            return rest
    except (msgspec.DecodeError, RecursionError):
        pass
    return None


def _hand_off_members(answer: _Answer) -> list[tuple[bytes, msgspec.Raw]]:
    """Names, as they are spelt in compact answers, and values, in the order of the workers' answers."""
    found = [(_PARAMETERS, choice.disaggregated_params) for choice in answer.choices or ()]
    found.append((_PARAMETERS, answer.disaggregated_params))
    found.append((_TOKEN_IDS, answer.prompt_token_ids))
    found.append((_TOKEN_IDS_B64, answer.prompt_token_ids_b64))
    return [member for member in found if member[1]]


def _without(source: bytes, members: list[tuple[bytes, msgspec.Raw]]) -> bytes | None:
    """Cut members out, from the last to the first, each with the comma before it or, at the beginning of an object,
    the one behind it. None if one is not found so: in this order, with this value, and without blanks around it.

    A quote behind a brace or a comma opens a string, since a letter follows it: this is a name, and no text.
    """
    parts: list[bytes] = []
    rest = len(source)
    for name, raw in reversed(members):
        value = bytes(raw)
        start = source.rfind(name, 0, rest)
        end = start + len(name) + len(value)
        if start < 1 or end > rest or not source.startswith(value, start + len(name)):
            return None
        if source[start - 1] == _COMMA and source[end] in _BEHIND:
            start -= 1
        elif source[start - 1] == _BRACE and source[end] == _COMMA and end < rest:
            end += 1
        else:
            return None
        parts.append(source[end:rest])
        rest = start
    parts.append(source[:rest])
    parts.reverse()
    return b"".join(parts)


def _cut_by_walk(source: bytes) -> bytes:
    try:
        split_object(source)
    except MalformedJSON:
        return source
    parts: list[bytes] = []
    at = 0
    for start, end in sorted(_ranges(source)):
        parts.append(source[at:start])
        at = end
    parts.append(source[at:])
    return b"".join(parts)


def _ranges(source: bytes) -> Iterator[tuple[int, int]]:
    members = member_spans(source, source.index(b"{"))
    yield from cut_ranges(members, _TOP_LEVEL)
    for member in members:
        if member.name == "choices":
            for choice in element_spans(source, member.value):
                yield from cut_ranges(member_spans(source, choice.value), _IN_CHOICE)
