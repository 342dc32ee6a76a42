"""Lazy JSON objects: the top level is split into raw slices and nothing deeper is parsed."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from proxy.wire.errors import MalformedJSON

Members = dict[str, msgspec.Raw]
"""A JSON object whose values are unparsed slices of the source."""

JSONBytes = bytes | memoryview | msgspec.Raw
"""One encoded JSON value. `msgspec.Raw` joins like bytes but never compares equal to them."""

NULL = b"null"

_OBJECT = msgspec.json.Decoder(Members)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])


class _Openings(dict[tuple[str, ...], tuple[bytes, ...]]):
    """Names -> `{"first":`, `,"second":` and so on. Requests and answers come in few shapes, so these are kept; the
    names are the clients', so only short ones are, and not without end."""

    def __missing__(self, names: tuple[str, ...]) -> tuple[bytes, ...]:
        openings = tuple(b",%b:" % msgspec.json.encode(name) for name in names)
        if openings:
            openings = (b"{" + openings[0][1:], *openings[1:])
        if sum(map(len, openings)) <= _LONGEST_SHAPE:
            if len(self) == _MOST_SHAPES:
                self.clear()
            self[names] = openings
        return openings


# Bytes; below this a copy is cheaper than one more piece.
_LARGE = 16 * 1024
_LONGEST_SHAPE = 1024  # bytes
_MOST_SHAPES = 512
_OPENINGS = _Openings()


def split_object(data: bytes | msgspec.Raw) -> Members:
    """Split a JSON object into its members, in order; of duplicate names the last value wins.

    `data` must be immutable: the slices reflect later changes of a bytearray. They keep all of it alive.

    Raises:
        MalformedJSON: not JSON, not an object, or nested too deeply.
    """
    try:
        return _OBJECT.decode(data)
    except RecursionError:
        raise MalformedJSON("nested too deeply") from None
    except msgspec.DecodeError as error:
        raise MalformedJSON(str(error)) from None


def split_array(data: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """Split a JSON array into its elements.

    Raises:
        MalformedJSON: not JSON, not an array, or nested too deeply.
    """
    try:
        return _ARRAY.decode(data)
    except RecursionError:
        raise MalformedJSON("nested too deeply") from None
    except msgspec.DecodeError as error:
        raise MalformedJSON(str(error)) from None


def _parts(members: Mapping[str, JSONBytes], *, more: int) -> list[JSONBytes]:
    """`{"a":`, `1`, `,"b":`, `2` and room for `more` parts: all are joined at once, since with `+` a body of 160 KB
    would be copied."""
    names = tuple(members)
    parts: list[JSONBytes] = [b""] * (2 * len(names) + more)
    end = 2 * len(names)
    parts[0:end:2] = _OPENINGS[names]
    parts[1:end:2] = members.values()
    return parts


def join_object(members: Mapping[str, JSONBytes]) -> bytes:
    """Encode an object of already encoded values."""
    if not members:
        return b"{}"
    parts = _parts(members, more=1)
    parts[-1] = b"}"
    return b"".join(parts)


def object_pieces(members: Mapping[str, JSONBytes], *, large: bool) -> tuple[JSONBytes, ...]:
    """Encode an object in pieces to be written one after the other.

    Args:
        members: already encoded values.
        large: do not copy values of more than 16 KB.
    """
    if not large:
        return (join_object(members),)
    parts = _parts(members, more=1)
    parts[-1] = b"}"
    return _joined_but_for_large(parts)


def open_object(members: Mapping[str, JSONBytes], last: str, *, large: bool = False) -> tuple[JSONBytes, ...]:
    """Encode an object up to the value of one more member, `last`: `{"a":1,"last":`; see `object_pieces`."""
    parts = _parts(members, more=1)
    name = b"%b:" % msgspec.json.encode(last)
    parts[-1] = b"," + name if members else b"{" + name
    return _joined_but_for_large(parts) if large else (b"".join(parts),)


def is_large(value: JSONBytes | None) -> bool:
    """Whether an encoded value is too large to be copied for nothing."""
    return value is not None and len(memoryview(value)) > _LARGE


def _joined_but_for_large(parts: Iterable[JSONBytes]) -> tuple[JSONBytes, ...]:
    pieces: list[JSONBytes] = []
    run: list[JSONBytes] = []
    for part in parts:
        if is_large(part):
            pieces += (b"".join(run), memoryview(part))
            run = []
        else:
            run.append(part)
    pieces.append(b"".join(run))
    return tuple(pieces)


def join_array(elements: Iterable[JSONBytes]) -> bytes:
    """Encode an array of already encoded elements."""
    return b"[" + b",".join(elements) + b"]"


as_view: Callable[[JSONBytes], object] = memoryview
"""What an encoded value is to be compared by: without a copy, and `msgspec.Raw` itself never equals bytes."""


def equals(value: JSONBytes, text: bytes) -> bool:
    """Compare an encoded value."""
    return as_view(value) == text


def is_null(value: JSONBytes | None) -> bool:
    """Whether a member is absent or null; the OpenAI wire format makes no difference between them."""
    return value is None or as_view(value) == NULL


def first_byte(value: JSONBytes) -> int:
    """The byte that tells the type of an encoded value; a raw slice carries no blanks around it."""
    return memoryview(value)[0]
