"""The fields from which NeMo-RL computes where the time of a request went (NVIDIA-NeMo/RL#4095).

They stand at the top level of a whole answer, and of the last event of a stream that carries JSON: the usage event if
the client asked for one, else the one with the finish reason.
"""

from __future__ import annotations

import re

from proxy.wire.errors import MalformedJSON
from proxy.wire.members import JSONBytes, equals, join_object, split_object
from proxy.wire.rewriting import Untouched
from proxy.wire.sse import data_of, with_data
from proxy.wire.token_ids import cut_token_ids

_OF_CONTEXT = "nemo_ctx_"

# Text cannot look like this: its quotes are escaped.
_usage_begins = re.compile(rb'"usage"[ \t]*:[ \t]*\{').search
_finished = re.compile(rb'"finish_reason"[ \t]*:[ \t]*"').search


class NemoFields(Untouched):
    """Adds the fields (see `proxy.wire.rewriting`).

    Args:
        fields: name -> encoded value.
        include_usage: a stream ends with a usage event.
    """

    __slots__ = ("_fields", "_is_last", "_usage")

    def __init__(self, fields: dict[str, bytes], *, include_usage: bool) -> None:
        self._fields = fields
        self._usage = include_usage
        self._is_last = _usage_begins if include_usage else _finished

    def answer(self, members: dict[str, JSONBytes]) -> None:
        """See `Rewriter`."""
        members.update(self._fields)

    def event(self, event: bytes) -> bytes:
        """See `Rewriter`."""
        if self._is_last(event) is None:
            return event
        try:
            members: dict[str, JSONBytes] = dict(split_object(data_of(event)))
        except MalformedJSON:
            return event
        if self._usage and not equals(members.get("choices", b"[]"), b"[]"):
            return event  # `continuous_usage_stats`
        return with_data(event, join_object({**members, **self._fields}))


def context_fields(answer: bytes) -> dict[str, bytes]:
    """The context worker's own fields, from its answer."""
    if _OF_CONTEXT.encode() not in answer:
        return {}
    cut = cut_token_ids(answer)
    try:
        members = split_object(answer if cut is None else cut.remainder)
    except MalformedJSON:
        return {}
    # Copies: slices would keep the whole answer alive.
    return {name: bytes(value) for name, value in members.items() if name.startswith(_OF_CONTEXT)}
