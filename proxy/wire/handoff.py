"""The context worker's answer: what the proxy needs from it, as slices."""

import re
from enum import Enum, auto
from typing import TypeVar

import msgspec

from proxy.wire.errors import BrokenHandOff, MalformedJSON
from proxy.wire.members import NULL, JSONBytes, Members, first_byte, is_null, split_object
from proxy.wire.token_ids import Cut, cut_token_ids

# The worker stopped after prefill and holds KV. `length` is ambiguous (a budget of one token, or the normal end
# of a prefill): as in `trtllm-serve disaggregated`, the generation leg is sent, which also frees the KV.
_NEEDS_GENERATION = frozenset({"not_finished", "length"})
# The worker gave up: there is neither an answer nor a hand-off.
_GIVEN_UP = frozenset({None, "timeout", "cancelled"})

_MAXIMUM_ID = (1 << 63) - 1
_NULL = msgspec.Raw(NULL)


class Outcome(Enum):
    """What the context worker's answer means for the request."""

    HAND_OFF = auto()
    """KV is held: the generation leg must follow."""
    FINISHED = auto()
    """The answer is complete (the first token ended it)."""
    GIVEN_UP = auto()
    """No answer and no hand-off: null, `timeout` or `cancelled`."""


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    disaggregated_params: msgspec.Raw = _NULL


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    usage: msgspec.Raw = _NULL
    prompt_token_ids: msgspec.Raw = _NULL
    prompt_token_ids_b64: msgspec.Raw = _NULL


class _InputDetails(msgspec.Struct):
    cached_tokens: int = 0


class _ResponseUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    input_tokens_details: _InputDetails = msgspec.field(default_factory=_InputDetails)


class _Response(msgspec.Struct):
    finish_reason: str | None = None
    disaggregated_params: msgspec.Raw = _NULL
    usage: _ResponseUsage | None = None
    prompt_token_ids: msgspec.Raw = _NULL
    prompt_token_ids_b64: msgspec.Raw = _NULL


_T = TypeVar("_T")
_ANSWER = msgspec.json.Decoder(_Answer)
_RESPONSE = msgspec.json.Decoder(_Response)
_INTEGER = msgspec.json.Decoder(int)

# No ids: the generation worker renders the prompt itself.
_NO_TOKEN_IDS = re.compile(rb'null|""|\[[ \t\r\n]*\]').fullmatch


class ContextAnswer:
    """A context worker's answer.

    Attributes:
        body: the whole answer as it came.
        outcome: whether a generation leg must follow.
        finish_reason: of the first choice.
        parameters: members of the first choice's `disaggregated_params`, opaque; empty unless there is a hand-off.
        request_id: `disagg_request_id` as the context worker returned it; it wins over the one that was sent.
        token_ids: the encoded ids (a base64 string with its quotes, or an array), or None.
        token_ids_member: the name of the member that they stood in.
        usage: the encoded `usage`, possibly null.
    """

    __slots__ = (
        "body",
        "finish_reason",
        "outcome",
        "parameters",
        "request_id",
        "token_ids",
        "token_ids_member",
        "usage",
    )

    def __init__(
        self, body: bytes, answer: _Answer, token_ids: memoryview | msgspec.Raw | None, member: str
    ) -> None:
        self.body = body
        self.usage = answer.usage
        self.token_ids: JSONBytes | None = token_ids
        self.token_ids_member = member
        if not answer.choices:
            raise BrokenHandOff("the context answer has no choices")
        first = answer.choices[0]
        self.finish_reason = first.finish_reason
        self.outcome = _outcome(first.finish_reason)
        self.parameters: Members = {}
        self.request_id = 0
        if self.outcome is Outcome.HAND_OFF:
            self.parameters = _parameters(first.disaggregated_params)
            self.request_id = _identifier(self.parameters, "disagg_request_id")
            _identifier(self.parameters, "ctx_request_id")

    def use_ids(self, ids: bytes, *, chat: bool) -> None:
        """The ids that the worker was given, should it not repeat them: the generation worker needs the same."""
        if self.token_ids is None:
            self.token_ids = ids
            self.token_ids_member = "prompt_token_ids_b64" if chat else "prompt_token_ids"


def _outcome(finish_reason: str | None) -> Outcome:
    if finish_reason in _NEEDS_GENERATION:
        return Outcome.HAND_OFF
    if finish_reason in _GIVEN_UP:
        return Outcome.GIVEN_UP
    return Outcome.FINISHED


def read_context_answer(body: bytes) -> ContextAnswer:
    """Read a 200 answer of a context worker.

    Raises:
        BrokenHandOff: not JSON, `null`, no choices, token ids in no known form, or a hand-off without parameters
            or ids. (With a missing id two users' answers could be swapped, so such a hand-off is never sent on.)
    """
    cut = cut_token_ids(body)
    if cut is not None:
        answer = _decode(cut.remainder, _ANSWER)
        if bytes(getattr(answer, cut.name)) == cut.nonce and _alone(answer, cut):
            return ContextAnswer(body, answer, cut.value, cut.name)
    return _with_ids(body, _decode(body, _ANSWER))


def read_response(body: bytes) -> ContextAnswer:
    """The same for an answer of /v1/responses, whose hand-off stands at its top level.

    Raises:
        BrokenHandOff: see `read_context_answer`.
    """
    response = _decode(body, _RESPONSE)
    choice = _Choice(response.finish_reason, response.disaggregated_params)
    ids = response.prompt_token_ids, response.prompt_token_ids_b64
    return _with_ids(body, _Answer([choice], _usage_of(response.usage), *ids))


def _usage_of(usage: _ResponseUsage | None) -> msgspec.Raw:
    """As chat has it, and generation workers want to be told it."""
    if usage is None:
        return _NULL
    return msgspec.Raw(
        msgspec.json.encode(
            {
                "prompt_tokens": usage.input_tokens,
                "total_tokens": usage.input_tokens + usage.output_tokens,
                "completion_tokens": usage.output_tokens,
                "prompt_tokens_details": {"cached_tokens": usage.input_tokens_details.cached_tokens},
            }
        )
    )


def _with_ids(body: bytes, answer: _Answer) -> ContextAnswer:
    for name, value, opening in (
        ("prompt_token_ids_b64", answer.prompt_token_ids_b64, b'"'),
        ("prompt_token_ids", answer.prompt_token_ids, b"["),
    ):
        if _NO_TOKEN_IDS(value):
            continue
        if first_byte(value) not in opening:
            raise BrokenHandOff(f"{name} of the context answer has an unknown form")
        return ContextAnswer(body, answer, value, name)
    return ContextAnswer(body, answer, None, "")


def _alone(answer: _Answer, cut: Cut) -> bool:
    """Base64 is preferred when both forms are there; then the array that was cut is not the one to send."""
    return cut.name == "prompt_token_ids_b64" or is_null(answer.prompt_token_ids_b64)


def _decode(body: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        return decoder.decode(body)
    except RecursionError:
        raise BrokenHandOff("the context answer is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise BrokenHandOff(f"the context answer is not what was expected: {error}") from None


def _parameters(value: msgspec.Raw) -> Members:
    if is_null(value):
        raise BrokenHandOff("the context answer carries no disaggregated_params")
    try:
        # A copy: it would keep the whole answer alive otherwise.
        return split_object(bytes(value))
    except MalformedJSON:
        raise BrokenHandOff("disaggregated_params of the context answer is not an object") from None


def _identifier(parameters: Members, name: str) -> int:
    value = parameters.get(name, _NULL)
    try:
        number = _INTEGER.decode(value)
    except msgspec.DecodeError:
        raise BrokenHandOff(f"the hand-off has no {name}") from None
    if not 0 <= number <= _MAXIMUM_ID:
        raise BrokenHandOff(f"{name} of the hand-off is not a 63-bit integer")
    return number
