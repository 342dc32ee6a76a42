"""The few things that the proxy itself reads of a client's request."""

import re

import msgspec

from proxy.wire.errors import InvalidField
from proxy.wire.members import Members, equals, first_byte, is_null, split_array

_STRING = msgspec.json.Decoder(str)
_INTEGER = msgspec.json.Decoder(int)
_QUOTE, _BRACKET = b'"['
_starts_with_number = re.compile(rb"\[[ \t\r\n]*[-0-9]").match
"""Whether this is a list of token ids; the rest of up to 100,000 of them is left to the worker to check."""


class _StreamOptions(msgspec.Struct):
    # `stream_options: {}` means that usage is wanted: the workers' default is true.
    include_usage: bool | None = True


_STREAM_OPTIONS = msgspec.json.Decoder(_StreamOptions)


class InferenceRequest(msgspec.Struct, frozen=True):
    """A request after the field policy.

    Attributes:
        members: what the workers will get, in the client's order.
        chat: chat completions, otherwise completions.
        model: as the client named it.
        stream: whether the client wants events.
        include_usage: whether the stream ends with a usage event.
        conversation: the encoded id of the conversation that the client names, or None.
        responses: OpenAI's Responses API. Its legs carry token ids as those of chat do.
    """

    members: Members
    chat: bool
    model: str
    stream: bool
    include_usage: bool
    conversation: bytes | None = None
    responses: bool = False


def read_request(
    members: Members, *, chat: bool, conversation: str = "", several: bool = False
) -> InferenceRequest:
    """Check what the proxy relies on; everything else is the workers' business.

    A prompt list with one element is unwrapped, since workers take it but the hand-off needs a single prompt.

    Args:
        members: of the request.
        chat: the route.
        conversation: the id that the client names, or "".
        several: the workers can make several choices of one hand-off.

    Raises:
        InvalidField: a required member is missing or one has the wrong type or an unsupported value.
    """
    model = _text(members, "model")
    if chat:
        _require_messages(members)
    else:
        prompt = members.get("prompt")
        if prompt is None or is_null(prompt):
            raise InvalidField("prompt", "prompt is required", code="missing_required_parameter")
        members["prompt"] = single_prompt(prompt)
    if not several:
        _refuse_several_answers(members)
    stream = _boolean(members, "stream")
    return InferenceRequest(
        members=members,
        chat=chat,
        model=model,
        stream=stream,
        include_usage=stream and _wants_usage(members),
        conversation=msgspec.json.encode(conversation) if conversation else None,
    )


def read_responses_request(members: Members, *, conversation: str = "") -> InferenceRequest:
    """Check a request of the Responses API. Workers that hand over keep no responses, so none is stored.

    Raises:
        InvalidField: a required member is missing, or one asks for something that was stored.
    """
    model = _text(members, "model")
    if is_null(members.get("input")):
        raise InvalidField("input", "input is required", code="missing_required_parameter")
    for name in ("previous_response_id", "conversation"):
        if not is_null(members.pop(name, None)):
            message = f"{name} is not supported: responses are not stored"
            raise InvalidField(name, message, code="unsupported_field")
    if _boolean(members, "background"):
        raise InvalidField("background", "background is not supported", code="unsupported_value")
    members["store"] = msgspec.Raw(b"false")
    return InferenceRequest(
        members=members,
        chat=True,
        model=model,
        stream=_boolean(members, "stream"),
        include_usage=False,
        conversation=msgspec.json.encode(conversation) if conversation else None,
        responses=True,
    )


def single_prompt(prompt: msgspec.Raw) -> msgspec.Raw:
    """The one prompt of a completions request: a string or a list of token ids.

    Raises:
        InvalidField: no prompt, several prompts, or something else.
    """
    if first_byte(prompt) == _QUOTE or _starts_with_number(prompt):
        return prompt
    if first_byte(prompt) == _BRACKET:
        prompts = split_array(prompt)
        if not prompts:
            raise InvalidField("prompt", "prompt must not be an empty list")
        if len(prompts) == 1 and (first_byte(prompts[0]) == _QUOTE or _starts_with_number(prompts[0])):
            return prompts[0]
    raise InvalidField(
        "prompt", "prompt must be one string, one list of token ids, or a list that holds one of these"
    )


def _text(members: Members, name: str) -> str:
    value = members.get(name)
    if value is None or is_null(value):
        raise InvalidField(name, f"{name} is required", code="missing_required_parameter")
    try:
        return _STRING.decode(value)
    except msgspec.DecodeError:
        raise InvalidField(name, f"{name} must be a string", code="invalid_type") from None


def _require_messages(members: Members) -> None:
    messages = members.get("messages")
    if messages is None or is_null(messages):
        raise InvalidField("messages", "messages is required", code="missing_required_parameter")
    if first_byte(messages) != _BRACKET:
        raise InvalidField("messages", "messages must be a list", code="invalid_type")
    # Only a short value can be an empty list; a long one is not parsed to find out.
    if len(memoryview(messages)) < 64 and not split_array(messages):
        raise InvalidField("messages", "messages must not be empty")


def _boolean(members: Members, name: str) -> bool:
    value = members.get(name)
    if value is None or is_null(value) or equals(value, b"false"):
        return False
    if equals(value, b"true"):
        return True
    raise InvalidField(name, f"{name} must be true or false", code="invalid_type")


def _integer(members: Members, name: str) -> int | None:
    value = members.get(name)
    if value is None or is_null(value):
        return None
    try:
        return _INTEGER.decode(value)
    except msgspec.DecodeError:
        raise InvalidField(name, f"{name} must be an integer", code="invalid_type") from None


def _refuse_several_answers(members: Members) -> None:
    """One context answer holds the KV of one sequence, so several answers cannot come from one hand-off."""
    for name in ("n", "best_of"):
        if name in members and (_integer(members, name) or 1) != 1:
            raise InvalidField(name, f"{name} other than 1 is not supported", code="unsupported_value")
    if "use_beam_search" in members and _boolean(members, "use_beam_search"):
        raise InvalidField("use_beam_search", "use_beam_search is not supported", code="unsupported_value")


def _wants_usage(members: Members) -> bool:
    value = members.get("stream_options")
    if value is None or is_null(value):
        return False
    try:
        return bool(_STREAM_OPTIONS.decode(value).include_usage)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidField(
            "stream_options", "stream_options must be an object", code="invalid_type"
        ) from None
