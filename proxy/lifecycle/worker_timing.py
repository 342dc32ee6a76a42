"""The workers' own metrics of one request, which a client asks for with `x-trtllm-return-metrics: 1`.

A worker puts them into the headers of a whole answer, and into an event behind the `[DONE]` of a stream, under the same
names: lists in the form of `server-timing`, each phase named `server...`. Here the phases of both legs are told apart
by `ctx` and `gen` in that place, as `trtllm-serve disaggregated` does, and what the proxy itself has seen is added as
`disagg`. The client gets them in the place in which it would find a worker's.
"""

from __future__ import annotations

import re
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from proxy.wire.rewriting import Untouched
from proxy.wire.sse import data_of, event

if TYPE_CHECKING:
    from proxy.lifecycle.headers import Headers
    from proxy.lifecycle.record import RequestRecord
    from proxy.upstream.head import ResponseHead

ASKED = b"x-trtllm-return-metrics: 1\r\n"
"""The header line among those that go to the workers."""

# The names of all phases begin so; values are numbers.
_PHASE = re.compile(rb"(?<![\w;=.-])server(?=[_-])")
_TIMING = b"server-timing"
_METRICS = {
    name.lower().encode(): name
    for name in (
        "Server-Timing",
        "X-TRTLLM-Start-End-Time",
        "X-TRTLLM-Step-Metrics",
        "X-TRTLLM-Ctx-Chunk-Metrics",
    )
}
"""Header -> member of the event."""
_SHORT = (_TIMING, b"x-trtllm-start-end-time")
# Beyond this workers leave out what has a part for each step (TensorRT-LLM's serving metrics).
_MOST = 80 * 1024
_EVENT_NAME = b"trtllm.perf_metrics"
# Data has no line breaks, so no text can look like this.
_names_metrics = re.compile(rb"(?:^|[\r\n])event: ?" + re.escape(_EVENT_NAME) + rb"[\r\n]").search
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)


def leg_metrics(head: ResponseHead, leg: bytes) -> Headers:
    """The metrics headers of a leg's answer, renamed.

    Args:
        head: of the answer.
        leg: `ctx` or `gen`.
    """
    return [(name, _PHASE.sub(leg, value)) for name, value in head.headers if name in _METRICS]


def combined(
    context: Headers, generation: Headers, record: RequestRecord, *, first_token: float = 0.0
) -> Headers:
    """One header of each name: the proxy's phases, the context leg's, the generation leg's.

    Args:
        context, generation: from `leg_metrics`.
        record: of the request.
        first_token: `perf_counter` seconds at a stream's first event; 0 for a whole answer, of which the first token
            came with the context leg.
    """
    values: dict[bytes, list[bytes]] = {_TIMING: [_own(record, first_token or record.context_done)]}
    for name, value in context + generation:
        values.setdefault(name, []).append(value)
    headers = [(name, b", ".join(parts)) for name, parts in values.items()]
    if sum(len(name) + len(value) for name, value in headers) > _MOST:
        return [(name, value) for name, value in headers if name in _SHORT]
    return headers


def without_metrics(headers: Headers) -> Headers:
    """All other headers."""
    return [(name, value) for name, value in headers if name not in _METRICS]


class MetricsEvent(Untouched):
    """Puts the combined metrics behind a stream, in place of the generation worker's (see `proxy.wire.rewriting`).

    Args:
        context: metrics of the context leg.
        record: of the request.
    """

    __slots__ = ("_context", "_first_token", "_generation", "_record")

    def __init__(self, context: Headers, record: RequestRecord) -> None:
        self._context = context
        self._generation: Headers = []
        self._record = record
        self._first_token = 0.0

    def event(self, event: bytes) -> bytes:
        """See `Rewriter`."""
        if not self._first_token:
            self._first_token = perf_counter()
        if _names_metrics(event) is None:
            return event
        self._generation = _event_metrics(data_of(event))
        return b""

    def end(self) -> bytes:
        """See `Rewriter`."""
        headers = combined(self._context, self._generation, self._record, first_token=self._first_token)
        members = {_METRICS[name]: value.decode("latin-1") for name, value in headers}
        return b"event: " + _EVENT_NAME + b"\n" + event(msgspec.json.encode(members))


def _event_metrics(data: bytes) -> Headers:
    """Those of the generation leg; what is not as expected is left out."""
    metrics: Headers = []
    try:
        for name, value in _MEMBERS.decode(data).items():
            header = name.lower().encode()
            if header in _METRICS:
                text = _TEXT.decode(value).encode("latin-1", "replace")
                metrics.append((header, _PHASE.sub(b"gen", text)))
    except (msgspec.DecodeError, RecursionError):
        return []
    return metrics


def _own(record: RequestRecord, first_token: float) -> bytes:
    sent = record.context_sent or record.generation_sent
    return b"disagg_queue;dur=%.3f, disagg_ttft;dur=%.3f" % (
        (sent - record.received) * 1e3,
        (first_token - record.received) * 1e3 if first_token else 0.0,
    )
