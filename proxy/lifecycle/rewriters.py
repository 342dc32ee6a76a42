"""Which rewriters a request needs. Nearly all need none, and their answers pass untouched.

A new reason to change answers is one more condition here. They are asked once a leg, so they have to be cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proxy.lifecycle.worker_timing import MetricsEvent
from proxy.wire.nemo import NemoFields, context_fields
from proxy.wire.responses import CleanEvents
from proxy.wire.usage import context_usage

if TYPE_CHECKING:
    from proxy.lifecycle.passage import Passage
    from proxy.wire.handoff import ContextAnswer
    from proxy.wire.members import JSONBytes
    from proxy.wire.request import InferenceRequest
    from proxy.wire.rewriting import Rewriter


def choose_rewriters(
    passage: Passage, answer: ContextAnswer | None, parameters: Mapping[str, JSONBytes] | None = None
) -> tuple[Rewriter, ...]:
    """The rewriters of a request, in the order in which they see its answer.

    Args:
        passage: of the request; its members are still there.
        answer: of the context worker, None if there was no context leg.
        parameters: that carry its hand-off to the generation worker, None if there was none.
    """
    if passage.request.responses:
        return (CleanEvents(),) if passage.request.stream else ()
    chosen: list[Rewriter] = []
    if (
        answer is not None
        and parameters is not None
        and "ctx_usage" not in parameters
        and _shows_usage(passage.request)
    ):
        usage = context_usage(answer.usage)
        if usage is not None:
            chosen.append(usage)
    if passage.worker_metrics is not None and passage.request.stream:
        chosen.append(MetricsEvent(passage.worker_metrics, passage.record))
    if passage.wanted_ids is not None:
        chosen.append(passage.wanted_ids.rewriter(passage.request.members, answer))
    if passage.stamps is not None:
        fields = passage.stamps.fields()
        if answer is not None:
            fields |= context_fields(answer.body)
        chosen.append(NemoFields(fields, include_usage=passage.request.include_usage))
    return tuple(chosen)


def _shows_usage(request: InferenceRequest) -> bool:
    """A stream shows it when it is asked to, at its end or in each event (`continuous_usage_stats`)."""
    return not request.stream or "stream_options" in request.members
