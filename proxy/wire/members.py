"""Lazy JSON objects: the top level is split into raw slices and nothing deeper is parsed."""

from collections.abc import Iterable, Mapping

import msgspec

from proxy.wire.errors import MalformedJSON

Members = dict[str, msgspec.Raw]
"""A JSON object whose values are unparsed slices of the source."""

JSONBytes = bytes | memoryview | msgspec.Raw
"""One encoded JSON value. `msgspec.Raw` joins like bytes but never compares equal to them."""

NULL = b"null"

_OBJECT = msgspec.json.Decoder(Members)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])

# The members that nearly every request has; other names are escaped one by one.
_KEY_PREFIXES: dict[str, bytes] = {
    name: b'"' + name.encode() + b'":'
    for name in (
        "model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k",
        "stream", "stream_options", "seed", "stop", "tools", "tool_choice", "response_format", "logprobs",
        "disaggregated_params", "prompt_token_ids", "prompt_token_ids_b64", "request_type", "ctx_request_id",
        "disagg_request_id", "first_gen_tokens", "first_gen_log_probs", "first_gen_logits", "ctx_usage",
        "encoded_opaque_state", "draft_tokens", "ctx_dp_rank", "ctx_info_endpoint", "schedule_style",
        "return_prompt_token_ids_b64", "resolved_thinking", "conversation_params", "ignore_eos",
    )
}  # fmt: skip


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
    parts: list[JSONBytes] = []
    for name, value in members.items():
        parts += (b",", _KEY_PREFIXES.get(name) or msgspec.json.encode(name) + b":", value)
    return parts


def member_list(members: Mapping[str, JSONBytes]) -> bytes:
    """Encode members without the braces around them: `"a":1,"b":2`."""
    return b"".join(_member_parts(members)[1:])


def join_object(members: Mapping[str, JSONBytes]) -> bytes:
    """Encode an object of already encoded values."""
    # All parts are joined at once: with `+` a body of 160 KB would be copied for each brace.
    return b"".join((b"{", *_member_parts(members)[1:], b"}"))


def open_object(members: Mapping[str, JSONBytes], last: str) -> bytes:
    """Encode an object up to the value of one more member, `last`: `{"a":1,"last":`."""
    return b"".join((b"{", *_member_parts({**members, last: b""})[1:]))


def join_array(elements: Iterable[JSONBytes]) -> bytes:
    """Encode an array of already encoded elements."""
    return b"[" + b",".join(elements) + b"]"


def equals(value: JSONBytes, text: bytes) -> bool:
    """Compare an encoded value without copying it (`msgspec.Raw` itself never equals bytes)."""
    view: object = memoryview(value)
    return view == text


def is_null(value: JSONBytes | None) -> bool:
    """Whether a member is absent or null; the OpenAI wire format makes no difference between them."""
    return value is None or equals(value, NULL)


def first_byte(value: JSONBytes) -> int:
    """The byte that tells the type of an encoded value; a raw slice carries no blanks around it."""
    return memoryview(value)[0]
