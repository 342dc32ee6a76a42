"""Where the members of an object and the elements of an array stand in their source text.

Needed to take a member out and leave every other byte as it was. The source must be valid JSON (it has been
decoded before); so this walk only looks for ends and never fails. It sees every member, duplicates included.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

_BLANKS = re.compile(rb"[ \t\r\n]*").match
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING_OR_BRACKET = re.compile(_STRING + rb"|[\[\]{}]")
_NAME = re.compile(_STRING).match
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]+").match

_QUOTE, _COMMA = b'",'
_OPENING, _CLOSING = b"[{", b"]}"


class Span(NamedTuple):
    """One member (or element, without a name): `[start, end)` in the source, the value begins at `value`."""

    name: str
    start: int
    value: int
    end: int


def _end(match: re.Match[bytes] | None) -> int:
    if match is None:
        raise AssertionError("the source is not valid JSON")
    return match.end()


def _after_value(source: bytes, at: int) -> int:
    """The position behind the value that starts at `at`."""
    if source[at] != _QUOTE and source[at] not in _OPENING:
        return _end(_SCALAR(source, at))
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(source, at):
        first = source[token.start()]
        if first in _OPENING:
            depth += 1
        elif first in _CLOSING:
            depth -= 1
        if depth == 0:
            return token.end()
    raise AssertionError("the source is not valid JSON")


def _items(source: bytes, at: int, *, named: bool) -> Iterator[Span]:
    at = _end(_BLANKS(source, at + 1))
    name = ""
    while source[at] not in _CLOSING:
        start = at
        if named:
            end_of_name = _end(_NAME(source, at))
            # Decoding has not checked the UTF-8 of names below the top level.
            name = json.loads(source[at:end_of_name].decode("utf-8", "replace"))
            colon = _end(_BLANKS(source, end_of_name))
            at = _end(_BLANKS(source, colon + 1))
        end = _after_value(source, at)
        yield Span(name, start, at, end)
        at = _end(_BLANKS(source, end))
        if source[at] == _COMMA:
            at = _end(_BLANKS(source, at + 1))


def member_spans(source: bytes, at: int) -> list[Span]:
    """Every member of the object whose brace is at `at`; none if something else is there."""
    return list(_items(source, at, named=True)) if source[at : at + 1] == b"{" else []


def element_spans(source: bytes, at: int) -> list[Span]:
    """Every element of the array whose bracket is at `at`; none if something else is there."""
    return list(_items(source, at, named=False)) if source[at : at + 1] == b"[" else []


def cut_ranges(members: list[Span], names: frozenset[str]) -> Iterator[tuple[int, int]]:
    """The ranges that take the named members out of an object, each with one comma beside it, in order."""
    kept_one = False
    for number, span in enumerate(members):
        if span.name not in names:
            kept_one = True
        elif kept_one:
            # From the end of the one before: its comma goes along.
            yield members[number - 1].end, span.end
        elif number + 1 < len(members):
            yield span.start, members[number + 1].start
        else:
            yield span.start, span.end
