"""Find the prompt's token ids in a context answer and cut them out, without decoding them.

The ids are nearly the whole answer (216 KB of 220 for 40,000 ids). Scanning them as JSON costs 65 us in
base64 and 456 us as an array; `bytes.find` for the next quote or bracket costs a few. The cut is made safe in
this way: a random nonce takes the place of the value, the remainder is decoded strictly, and the top-level
member must then equal the nonce. A pattern inside a nested object, a duplicate member or the tail of an
escaped name cannot pass for it. When the member turns out to be anything else, the caller splits lazily.

The ids themselves are not checked: commas in the wrong places, words, or letters that base64 does not have are for
the generation worker to refuse: looking at each character of an array would cost more than all the rest.
"""

import base64
import os
import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from proxy.wire.errors import BrokenHandOff
from proxy.wire.members import JSONBytes

_BASE64_MEMBER = b'"prompt_token_ids_b64":"'
_ARRAY_MEMBER = b'"prompt_token_ids":['
_IDS = msgspec.json.Decoder(list[int])
# What a string or anything nested begins with; without these the next bracket is the array's.
_OPENINGS = (b'"', b"[", b"{")

# Below this size the plain split is as fast.
WORTH_CUTTING = 2048


class Cut(NamedTuple):
    """A value that was cut out: the member's name, the encoded value, the nonce, and the text with the nonce."""

    name: str
    value: memoryview
    nonce: bytes
    remainder: bytes


def cut_token_ids(answer: bytes) -> Cut | None:
    """Cut the first base64 string or array of token ids out of `answer`; None when there is none to cut."""
    start = answer.find(_BASE64_MEMBER)
    if start >= 0:
        return _cut_string(answer, start + len(_BASE64_MEMBER) - 1)
    start = answer.find(_ARRAY_MEMBER)
    if start >= 0:
        return _cut_array(answer, start + len(_ARRAY_MEMBER) - 1)
    return None


def _cut_string(answer: bytes, start: int) -> Cut | None:
    end = answer.find(b'"', start + 1) + 1
    if end == 0 or end - start < WORTH_CUTTING:
        return None
    # Nearly always the whole answer is ASCII, which is found out without a copy.
    if answer.find(b"\\", start, end) >= 0 or not (answer.isascii() or answer[start:end].isascii()):
        return None
    return _cut(answer, "prompt_token_ids_b64", start, end)


def _cut_array(answer: bytes, start: int) -> Cut | None:
    end = answer.find(b"]", start) + 1
    if end == 0 or end - start < WORTH_CUTTING:
        return None
    if any(answer.find(opening, start + 1, end) >= 0 for opening in _OPENINGS):
        return None
    return _cut(answer, "prompt_token_ids", start, end)


def _cut(answer: bytes, name: str, start: int, end: int) -> Cut:
    nonce = b'"' + os.urandom(16).hex().encode() + b'"'
    remainder = b"".join((answer[:start], nonce, answer[end:]))
    return Cut(name, memoryview(answer)[start:end], nonce, remainder)


def ids_of(value: JSONBytes) -> list[int]:
    """Decode ids: an array, or base64 of little-endian int32 (TRT#15698), encoded as JSON.

    Raises:
        BrokenHandOff: it is neither.
    """
    encoded = bytes(value)
    try:
        if encoded.startswith(b"["):
            return _IDS.decode(encoded)
        ids = array("i", base64.b64decode(encoded[1:-1], validate=True))
    except (msgspec.MsgspecError, ValueError):
        raise BrokenHandOff("the token ids are neither an array nor base64 of int32") from None
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()


def base64_of_ids(ids: Sequence[int]) -> bytes:
    """Encode ids as a JSON string of base64, as workers read `prompt_token_ids_b64`.

    Raises:
        OverflowError: an id has more than 32 bits.
    """
    packed = array("i", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return b'"' + base64.b64encode(packed.tobytes()) + b'"'


def array_of_base64(value: JSONBytes) -> bytes:
    """Decode ids in base64 into a JSON array: for workers that know no base64.

    Args:
        value: the encoded string, with its quotes.

    Raises:
        BrokenHandOff: it is not base64 of whole numbers.
    """
    return msgspec.json.encode(ids_of(value))
