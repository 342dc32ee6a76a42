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
_BEFORE_NAME = b"{,"
_COMMA = ord(",")

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
    """Whether there is surely no hand-off member in it."""
    return (
        b"disaggregated_params" not in source
        and b"prompt_token_ids" not in source
        and b"\\u00" not in source  # a letter of a name may be escaped
    )


def _cut_by_text(source: bytes) -> bytes | None:
    """Remove the members of a compact answer; None when in doubt."""
    try:
        members = _hand_off_members(_ANSWER.decode(source))
        if not members:
            return source
        rest = source
        for name, value in members:
            shorter = _without(rest, name, bytes(value))
            if shorter is None:
                return None
            rest = shorter
        # Each cut took one member away. If one was taken from a place where the client may see it, or a name
        # stands twice, then a member is left where none should be.
        return rest if _names_none(rest) or not _hand_off_members(_ANSWER.decode(rest)) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _hand_off_members(answer: _Answer) -> list[tuple[bytes, msgspec.Raw]]:
    """Names, as they are spelt in compact answers, and values."""
    found = [(_PARAMETERS, choice.disaggregated_params) for choice in answer.choices or ()]
    found.append((_TOKEN_IDS, answer.prompt_token_ids))
    found.append((_TOKEN_IDS_B64, answer.prompt_token_ids_b64))
    found.append((_PARAMETERS, answer.disaggregated_params))
    return [member for member in found if member[1]]


def _without(source: bytes, spelling: bytes, value: bytes) -> bytes | None:
    """Cut out the first member with this name if it has this value and no blanks stand around it.

    A quote behind a brace or a comma opens a string, since a letter follows it: this is a name, and no text.
    """
    start = source.find(spelling)
    behind_name = start + len(spelling)
    if start < 1 or not source.startswith(value, behind_name):
        return None
    end = behind_name + len(value)
    before, behind = source[start - 1], source[end : end + 1]
    if behind == b"," and before in _BEFORE_NAME:
        return source[:start] + source[end + 1 :]
    if behind == b"}" and before == _COMMA:
        return source[: start - 1] + source[end:]
    return None


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
