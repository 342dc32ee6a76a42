"""The bodies of the two legs, spliced from the client's members and the context worker's answer.

The client's members travel as they came. `trtllm-serve disaggregated` changes four things: the context leg is
never streamed and carries `disaggregated_params` of its own; the generation leg carries those that the context
worker returned, and the prompt's token ids in whatever form they arrived. Nothing else is touched; the token
budget stays, since `request_type: context_only` already stops a worker after the first token.
"""

from collections.abc import Mapping

from proxy.wire.fields.accepted import Accepted
from proxy.wire.handoff import ContextAnswer
from proxy.wire.members import (
    JSONBytes,
    first_byte,
    is_large,
    join_array,
    join_object,
    object_pieces,
    open_object,
    split_array,
)
from proxy.wire.token_ids import array_of_base64

CONTEXT_FIRST = b"0"  # schedule_style is an integer on the wire

# Members of a client's request that each leg sets for itself.
_OF_CONTEXT_LEG = ("stream", "stream_options", "disaggregated_params")
_TOKEN_IDS = ("prompt_token_ids", "prompt_token_ids_b64")
_NOTHING: frozenset[str] = frozenset()


def context_body(
    members: Mapping[str, JSONBytes],
    request_id: int,
    accepted: Accepted,
    *,
    base64_ids: bool,
    without: frozenset[str] = _NOTHING,
    conversation: JSONBytes | None = None,
    token_ids: JSONBytes | None = None,
) -> tuple[JSONBytes, ...]:
    """The context leg, in pieces to be written one after the other, so that a long prompt is not copied.

    Args:
        members: the client's members after the field policy.
        request_id: `disagg_request_id`, fresh for each attempt, since workers refuse an id they have seen.
        accepted: what the worker knows, which decides about the keys of `disaggregated_params`.
        base64_ids: ask for the prompt's token ids in base64, if the worker knows it.
        without: members that this worker does not know, unlike others of its pool.
        conversation: the encoded conversation id, for workers that take it among the parameters.
        token_ids: the encoded ids of the prompt, so that the worker need not tokenise: a string of base64 for chat, an
            array for completions.
    """
    known = accepted.parameters
    parameters = b'{"request_type":"context_only","disagg_request_id":%d' % request_id
    if "schedule_style" in known:
        parameters += b',"schedule_style":' + CONTEXT_FIRST
    if base64_ids and "return_prompt_token_ids_b64" in known:
        parameters += b',"return_prompt_token_ids_b64":true'
    if conversation is not None and "conversation_id" in known:
        parameters += b',"conversation_id":' + bytes(conversation)
    leg = _without(members, without)
    for name in _OF_CONTEXT_LEG:
        leg.pop(name, None)
    if token_ids is not None:
        leg["prompt_token_ids_b64" if "messages" in leg else "prompt"] = token_ids
    leg["stream"] = b"false"
    leg["disaggregated_params"] = parameters + b"}"
    return object_pieces(leg, large=_has_long_prompt(leg))


def _has_long_prompt(leg: Mapping[str, JSONBytes]) -> bool:
    return is_large(leg["messages"] if "messages" in leg else leg.get("prompt"))


def _without(members: Mapping[str, JSONBytes], names: frozenset[str]) -> dict[str, JSONBytes]:
    """A copy that lacks these members."""
    copy = dict(members)
    if not names.isdisjoint(copy):
        for name in names:
            copy.pop(name, None)
    return copy


def generation_parameters(
    answer: ContextAnswer, accepted: Accepted | None = None, *, conversation: JSONBytes | None = None
) -> dict[str, JSONBytes]:
    """The generation leg's `disaggregated_params`: everything the context worker returned, known or not.

    A key that the context answer lacks is one that this version of the workers does not know (they write all
    their keys, nulls included), so none is added.

    Args:
        answer: the context worker's.
        accepted: what the generation worker knows; keys are left out if it certainly refuses them. None when it is
            like the context worker.
        conversation: the encoded conversation id, for workers that take it among the parameters.
    """
    parameters: dict[str, JSONBytes] = dict(answer.parameters)
    if accepted is not None and not accepted.takes_parameters(parameters.keys()):
        parameters = {name: value for name, value in parameters.items() if accepted.takes_parameter(name)}
    if conversation is not None and "conversation_id" in parameters:
        parameters["conversation_id"] = conversation
    parameters["request_type"] = b'"generation_only"'
    if "schedule_style" in parameters:
        parameters["schedule_style"] = CONTEXT_FIRST
    if "ctx_usage" in parameters:
        parameters["ctx_usage"] = answer.usage
    endpoint = parameters.get("ctx_info_endpoint")
    if endpoint is not None and first_byte(endpoint) == ord("["):
        # Some engine versions hold a list; the wire model takes one string.
        elements = split_array(bytes(endpoint))
        parameters["ctx_info_endpoint"] = elements[0] if elements else b"null"
    return parameters


def generation_body(
    members: Mapping[str, JSONBytes],
    answer: ContextAnswer,
    parameters: Mapping[str, JSONBytes],
    *,
    chat: bool,
    last_message: JSONBytes | None = None,
    base64_ids: bool = True,
    without: frozenset[str] = _NOTHING,
) -> tuple[JSONBytes, ...]:
    """The generation leg, in pieces to be written one after the other, so that neither the ids nor a
    long prompt are copied.

    Args:
        members: the client's members after the field policy.
        answer: the context worker's answer.
        parameters: from `generation_parameters`.
        chat: chat carries the ids beside `messages`; completions carry them as `prompt`.
        last_message: when given, `messages` is cut to this one.
        base64_ids: the worker takes ids in base64; otherwise they are decoded for it.
        without: members that this worker does not know, unlike others of its pool.
    """
    leg = _without(members, without)
    leg["disaggregated_params"] = join_object(parameters)
    # Completions take ids in a list only (their workers send no other form): a string would pass for text.
    if answer.token_ids is None or (not chat and first_byte(answer.token_ids) != ord("[")):
        return object_pieces(leg, large=_has_long_prompt(leg))
    for name in _TOKEN_IDS if chat else ("prompt",):
        leg.pop(name, None)
    if chat and last_message is not None:
        leg["messages"] = join_array((last_message,))
    ids_member = answer.token_ids_member if chat else "prompt"
    token_ids: JSONBytes = answer.token_ids
    if not base64_ids and ids_member == "prompt_token_ids_b64":
        ids_member, token_ids = "prompt_token_ids", array_of_base64(token_ids)
    return (*open_object(leg, ids_member, large=_has_long_prompt(leg)), token_ids, b"}")
