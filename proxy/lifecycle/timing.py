"""Headers that tell a client where the time of its request went, as far as that is known when the answer begins."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.lifecycle.headers import Headers
    from proxy.lifecycle.record import RequestRecord


def add_timing(headers: Headers, record: RequestRecord) -> None:
    """Add them to an answer's headers; a worker's `server-timing` goes on in the same line."""
    overhead, own = timing_headers(record)
    headers.append(overhead)
    for place, (name, value) in enumerate(headers):
        if name == own[0]:
            headers[place] = (name, b"%b, %b" % (value, own[1]))
            return
    headers.append(own)


def timing_headers(record: RequestRecord) -> Headers:
    """`x-disagg-proxy-overhead-us`, the proxy's own time in microseconds, and `server-timing`, in milliseconds.

    The metrics of `server-timing` (W3C Server Timing): `queue`, `ctx` (the context leg), `handoff` (from its answer to
    sending the generation leg), `gen_first` (to the head of a streamed answer) or `gen` (to the end of a whole one),
    `total` (since the request's arrival). Those that were not reached are left out.
    """
    now = perf_counter()
    total = now - record.received
    overhead = (b"x-disagg-proxy-overhead-us", b"%d" % (max(0.0, total - record.waited) * 1e6))
    queue = (record.queue_ended - record.queue_began) * 1e3
    context_done, sent, head = record.context_done, record.generation_sent, record.generation_head
    if context_done and head > sent > context_done:
        value = b"queue;dur=%.3f, ctx;dur=%.3f, handoff;dur=%.3f, %b;dur=%.3f, total;dur=%.3f" % (
            queue,
            (context_done - record.context_sent) * 1e3,
            (sent - context_done) * 1e3,
            b"gen_first" if record.stream else b"gen",
            (head - sent) * 1e3,
            total * 1e3,
        )
    elif context_done:
        value = b"queue;dur=%.3f, ctx;dur=%.3f, total;dur=%.3f" % (
            queue,
            (context_done - record.context_sent) * 1e3,
            total * 1e3,
        )
    else:
        value = b"queue;dur=%.3f, total;dur=%.3f" % (queue, total * 1e3)
    return [overhead, (b"server-timing", value)]
