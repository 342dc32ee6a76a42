"""Answers of /v1/responses (OpenAI's Responses API), which have a shape and events of their own."""

from __future__ import annotations

from proxy.wire.answers import clean_answer
from proxy.wire.errors import MalformedJSON
from proxy.wire.handoff import ContextAnswer
from proxy.wire.members import JSONBytes, equals, is_null, join_object, split_object
from proxy.wire.rewriting import Untouched
from proxy.wire.sse import data_of, with_data

_COMPLETED, _INCOMPLETE = b"completed", b"incomplete"


def response_stream(answer: ContextAnswer) -> bytes:
    """An answer that the context worker completed, for a client that asked for a stream: created, in progress, and at
    once completed, or incomplete if the worker says so.

    Raises:
        MalformedJSON: the answer is no object.
    """
    final: dict[str, JSONBytes] = dict(split_object(clean_answer(answer.body)))
    status = final.get("status")
    last = _INCOMPLETE if status is not None and equals(status, b'"incomplete"') else _COMPLETED
    begun = {**final, "status": b'"in_progress"', "output": b"[]", "usage": b"null"}
    return b"".join(
        (
            _event(0, b"created", begun),
            _event(1, b"in_progress", begun),
            _event(2, last, final),
        )
    )


def _event(number: int, name: bytes, response: dict[str, JSONBytes]) -> bytes:
    data: dict[str, JSONBytes] = {
        "type": b'"response.%b"' % name,
        "sequence_number": b"%d" % number,
        "response": join_object(response),
    }
    return b"event: response.%b\ndata: %b\n\n" % (name, join_object(data))


class CleanEvents(Untouched):
    """Takes hand-off members out of the responses that a stream shows at its beginning and end."""

    __slots__ = ()

    def event(self, event: bytes) -> bytes:
        """See `Rewriter`."""
        if b'"disaggregated_params"' not in event and b'"prompt_token_ids' not in event:
            return event
        try:
            members: dict[str, JSONBytes] = dict(split_object(data_of(event)))
        except MalformedJSON:
            return event
        response = members.get("response")
        if is_null(response) or response is None:
            return event
        members["response"] = clean_answer(bytes(response))
        return with_data(event, join_object(members))
