"""The bodies of the two legs, spliced from the client's members and the context worker's answer.

The client's members travel as they came. `trtllm-serve disaggregated` changes four things: the context leg is
never streamed and carries `disaggregated_params` of its own; the generation leg carries those that the context
worker returned, and the prompt's token ids in whatever form they arrived. Nothing else is touched; the token
budget stays, since `request_type: context_only` already stops a worker after the first token.
"""

from collections.abc import Mapping

from proxy.wire.handoff import ContextAnswer
from proxy.wire.members import JSONBytes, first_byte, join_array, join_object, open_object, split_array
from proxy.wire.versions import WorkerVersion

CONTEXT_FIRST = b"0"  # schedule_style is an integer on the wire

# Members of a client's request that each leg sets for itself.
_OF_CONTEXT_LEG = ("stream", "stream_options", "disaggregated_params")
_TOKEN_IDS = ("prompt_token_ids", "prompt_token_ids_b64")


def context_body(
    members: Mapping[str, JSONBytes], request_id: int, version: WorkerVersion, *, base64_ids: bool
) -> bytes:
    """The context leg.

    Args:
        members: the client's members after the field policy.
        request_id: `disagg_request_id`, fresh for each attempt, since workers refuse an id they have seen.
        version: which keys `disaggregated_params` may carry.
        base64_ids: ask for the prompt's token ids in base64.
    """
    parameters: dict[str, JSONBytes] = {
        "request_type": b'"context_only"',
        "disagg_request_id": b"%d" % request_id,
    }
    if version.sends_schedule_style:
        parameters["schedule_style"] = CONTEXT_FIRST
    if base64_ids and version.takes_base64_ids:
        parameters["return_prompt_token_ids_b64"] = b"true"
    leg = {name: value for name, value in members.items() if name not in _OF_CONTEXT_LEG}
    leg["stream"] = b"false"
    leg["disaggregated_params"] = join_object(parameters)
    return join_object(leg)


def generation_parameters(answer: ContextAnswer) -> dict[str, JSONBytes]:
    """The generation leg's `disaggregated_params`: everything the context worker returned, known or not.

    A key that the context answer lacks is one that this version of the workers does not know (they write all
    their keys, nulls included), so none is added.
    """
    parameters: dict[str, JSONBytes] = dict(answer.parameters)
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
) -> tuple[JSONBytes, ...]:
    """The generation leg, in pieces to be written one after the other, so that the ids are not copied again.

    Args:
        members: the client's members after the field policy.
        answer: the context worker's answer.
        parameters: from `generation_parameters`.
        chat: chat carries the ids beside `messages`; completions carry them as `prompt`.
        last_message: when given, `messages` is cut to this one.
    """
    leg = dict(members)
    leg["disaggregated_params"] = join_object(parameters)
    # Completions take ids in a list only (their workers send no other form): a string would pass for text.
    if answer.token_ids is None or (not chat and first_byte(answer.token_ids) != ord("[")):
        return (join_object(leg),)
    for name in _TOKEN_IDS if chat else ("prompt",):
        leg.pop(name, None)
    if chat and last_message is not None:
        leg["messages"] = join_array((last_message,))
    ids_member = answer.token_ids_member if chat else "prompt"
    return (open_object(leg, ids_member), answer.token_ids, b"}")
