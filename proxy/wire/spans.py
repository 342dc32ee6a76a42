"""Where the members of an object and the elements of an array stand in the source text.

Needed to take a member out and leave every other byte as it was. The values' extents come from the
lazy split (`members`); this module walks over names, colons, commas and blanks between them and checks
each step, so a duplicate name or any other surprise ends in None and never in a wrong cut.
"""

from typing import NamedTuple

import msgspec

from proxy.wire.members import Members

_BLANKS = b" \t\r\n"
_QUOTE, _BACKSLASH, _COLON, _COMMA = b'"\\:,'


class Span(NamedTuple):
    """One member (or element): `[start, end)` in the source, the value begins at `value`."""

    start: int
    value: int
    end: int


def _after_blanks(source: bytes, at: int) -> int:
    while at < len(source) and source[at] in _BLANKS:
        at += 1
    return at


def _after_string(source: bytes, at: int) -> int:
    """The position behind the string that starts at `at`, or -1."""
    if at >= len(source) or source[at] != _QUOTE:
        return -1
    end = at + 1
    while True:
        end = source.find(b'"', end)
        if end < 0:
            return -1
        backslashes = end - 1
        while source[backslashes] == _BACKSLASH:
            backslashes -= 1
        if (end - backslashes) % 2:
            return end + 1
        end += 1


def _after_separator(source: bytes, at: int, last: bool, closing: bytes) -> int:
    """The position behind the comma, or behind the closing bracket of the last item; -1 if neither stands here."""
    at = _after_blanks(source, at)
    expected = closing[0] if last else _COMMA
    return at + 1 if at < len(source) and source[at] == expected else -1


def member_spans(source: bytes, members: Members) -> dict[str, Span] | None:
    """Find each member of the object `source`, which was split into `members`; None when in doubt."""
    spans: dict[str, Span] = {}
    at = _after_blanks(source, 0) + 1
    remaining = len(members)
    for name, value in members.items():
        start = _after_blanks(source, at)
        end_of_name = _after_string(source, start)
        if end_of_name < 0 or msgspec.json.decode(source[start:end_of_name]) != name:
            return None
        colon = _after_blanks(source, end_of_name)
        if source[colon : colon + 1] != b":":
            return None
        begin = _after_blanks(source, colon + 1)
        end = begin + len(memoryview(value))
        remaining -= 1
        at = _after_separator(source, end, remaining == 0, b"}")
        if at < 0:
            return None
        spans[name] = Span(start, begin, end)
    return spans if _after_blanks(source, at) == len(source) else None


def element_spans(source: bytes, elements: list[msgspec.Raw]) -> list[Span] | None:
    """Find each element of the array `source`, which was split into `elements`; None when in doubt."""
    spans: list[Span] = []
    at = _after_blanks(source, 0) + 1
    for number, element in enumerate(elements, 1):
        start = _after_blanks(source, at)
        end = start + len(memoryview(element))
        at = _after_separator(source, end, number == len(elements), b"]")
        if at < 0:
            return None
        spans.append(Span(start, start, end))
    return spans


def without(source: bytes, spans: dict[str, Span], names: frozenset[str]) -> bytes:
    """Take members out of an object, each with one comma beside it; all other bytes stay."""
    parts: list[bytes] = []
    opening = before = next(iter(spans.values())).start
    for name, span in spans.items():
        if name not in names:
            # What stands between a member and its predecessor (comma, blanks) comes along, but not for the first.
            parts.append(source[before if parts else span.start : span.end])
        before = span.end
    return b"".join((source[:opening], *parts, source[before:]))
