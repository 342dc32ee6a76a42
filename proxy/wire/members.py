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


class _Prefixes(dict[str, bytes]):
    """Name -> `,"name":`. Names that are not listed are encoded each time: they are the clients' and without end."""

    def __missing__(self, name: str) -> bytes:
        return b"," + msgspec.json.encode(name) + b":"


# The members that nearly every request has.
_PREFIXES = _Prefixes(
    (name, b',"%b":' % name.encode())
    for name in (
        "model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k",
        "stream", "stream_options", "seed", "stop", "tools", "tool_choice", "response_format", "logprobs",
        "disaggregated_params", "prompt_token_ids", "prompt_token_ids_b64", "request_type", "ctx_request_id",
        "disagg_request_id", "first_gen_tokens", "first_gen_log_probs", "first_gen_logits", "ctx_usage",
        "encoded_opaque_state", "draft_tokens", "ctx_dp_rank", "ctx_info_endpoint", "schedule_style",
        "return_prompt_token_ids_b64", "resolved_thinking", "conversation_params", "ignore_eos",
    )
)  # fmt: skip


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


def _member_parts(members: Mapping[str, JSONBytes]) -> list[JSONBytes]:
    """`,"a":`, `1`, `,"b":`, `2`: all parts are joined at once, since with `+` a body of 160 KB would be copied."""
    prefixes = _PREFIXES
    parts: list[JSONBytes] = []
    for name, value in members.items():
        parts += (prefixes[name], value)
    return parts


def join_object(members: Mapping[str, JSONBytes]) -> bytes:
    """Encode an object of already encoded values."""
    parts = _member_parts(members)
    if not parts:
        return b"{}"
    return b"".join((b"{", bytes(parts[0])[1:], *parts[1:], b"}"))


def open_object(members: Mapping[str, JSONBytes], last: str) -> bytes:
    """Encode an object up to the value of one more member, `last`: `{"a":1,"last":`."""
    parts = _member_parts(members)
    parts.append(_PREFIXES[last])
    return b"".join((b"{", bytes(parts[0])[1:], *parts[1:]))


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
