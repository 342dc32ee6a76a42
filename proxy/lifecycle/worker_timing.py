"""The workers' own metrics of one request, which a client asks for with `x-trtllm-return-metrics: 1`.

A worker puts them into the headers of a whole answer, each phase named `server...`. Here those of both legs are told
apart by `ctx` and `gen` in that place, as `trtllm-serve disaggregated` does, and what the proxy itself has seen is
added as `disagg`. A stream brings those of its generation leg as an event after its end; that passes as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.lifecycle.headers import Headers
    from proxy.lifecycle.record import RequestRecord
    from proxy.upstream.head import ResponseHead

ASKED = b"x-trtllm-return-metrics: 1\r\n"
"""The header line among those that go to the workers."""

# The names of all phases begin so; values are numbers and JSON without this word as a key's beginning.
_PHASE = re.compile(rb"(?<![\w;=.-])server(?=[_-])")
_TIMING = b"server-timing"
_METRICS = frozenset(
    {_TIMING, b"x-trtllm-start-end-time", b"x-trtllm-step-metrics", b"x-trtllm-ctx-chunk-metrics"}
)


def leg_metrics(head: ResponseHead, leg: bytes) -> Headers:
    """The metrics headers of a leg's answer, renamed.

    Args:
        head: of the answer.
        leg: `ctx` or `gen`.
    """
    return [(name, _PHASE.sub(leg, value)) for name, value in head.headers if name in _METRICS]


def combined(context: Headers, generation: Headers, record: RequestRecord) -> Headers:
    """One header of each name: the proxy's phases, the context leg's, the generation leg's.

    Step and chunk metrics are JSON, which is not joined: they come from one leg each, else from the generation leg.
    """
    values: dict[bytes, list[bytes]] = {_TIMING: [_own(record)]}
    for name, value in context + generation:
        if name in (_TIMING, b"x-trtllm-start-end-time"):
            values.setdefault(name, []).append(value)
        else:
            values[name] = [value]
    return [(name, b", ".join(parts)) for name, parts in values.items()]


def without_metrics(headers: Headers) -> Headers:
    """All other headers."""
    return [(name, value) for name, value in headers if name not in _METRICS]


def _own(record: RequestRecord) -> bytes:
    sent = record.context_sent or record.generation_sent
    return b"disagg_queue;dur=%.3f, disagg_ttft;dur=%.3f" % (
        (sent - record.received) * 1e3,
        (record.context_done - record.received) * 1e3 if record.context_done else 0.0,
    )
