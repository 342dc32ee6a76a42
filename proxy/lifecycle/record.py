"""What is known of one request: filled in on its way, read by the access log and the metrics when it is settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.errors import ProxyError
    from proxy.workers.worker import Worker


class RequestRecord:
    """One request. Sizes are bytes, times are `perf_counter` seconds, 0 = not reached.

    (The clock of uvloop's event loop counts whole milliseconds: good for time-outs, not for these.)

    Attributes:
        request_id: the client's, or made here.
        route: the matched path, or `other` (bounded, so that it can be a metric label).
        status: of the answer, 499 when the client left before it, 0 before there was one.
        error: what went wrong, if anything.
        conversation: the id that the client names, or empty; logged as a hash only.
        key: name of the API key, empty without one.
        queue_began, queue_ended: while it waited for its admission.
        bypass: why there was no context leg, if there was none: `context_down`, `benchmark`.
        context_worker, generation_worker: who ran the legs last.
        waited: seconds spent waiting for others; see `proxy.lifecycle.watch.Watch`.
        retries, generation_retries: legs that were sent again, and those of them that were generation legs.
        cut_inside_event: the stream broke off inside an event, so that no error event could be added.
        dropped: names of members that the field policy left out.
    """

    __slots__ = (
        "answered_by",
        "body_size",
        "bypass",
        "context_done",
        "context_sent",
        "context_worker",
        "conversation",
        "cut_inside_event",
        "disagg_request_id",
        "dropped",
        "ended",
        "error",
        "first_byte",
        "generation_head",
        "generation_retries",
        "generation_sent",
        "generation_worker",
        "key",
        "model",
        "queue_began",
        "queue_ended",
        "received",
        "request_id",
        "response_size",
        "retries",
        "route",
        "status",
        "stream",
        "waited",
    )

    def __init__(self, request_id: str, received: float) -> None:
        self.request_id = request_id
        self.received = received
        self.ended = 0.0
        self.route = "other"
        self.status = 0
        self.error: ProxyError | None = None
        self.key = ""
        self.model = ""
        self.conversation = ""
        self.stream = False
        self.body_size = 0
        self.response_size = 0
        self.dropped: tuple[str, ...] = ()
        self.retries = 0
        self.generation_retries = 0
        self.waited = 0.0
        self.cut_inside_event = False
        self.bypass = ""
        self.disagg_request_id = 0
        self.context_worker: Worker | None = None
        self.generation_worker: Worker | None = None
        self.answered_by = "proxy"
        self.queue_began = 0.0
        self.queue_ended = 0.0
        self.context_sent = 0.0
        self.context_done = 0.0
        self.generation_sent = 0.0
        self.generation_head = 0.0
        self.first_byte = 0.0

    def take_over(self, other: RequestRecord) -> None:
        """Note of a request that another one was made of it: what both legs of that one left behind."""
        for name in _OF_LEGS:
            setattr(self, name, getattr(other, name))

    @property
    def outcome(self) -> str:
        """How the request ended, for metrics: a closed set of words.

        `rejected` with a 4xx, `error` with a 5xx, the proxy's or a worker's, or by a stream that broke off.
        """
        if self.status == 499:
            return "client_closed"
        error = self.error
        if self.status >= 500 or (error is not None and error.status >= 500):
            return "error"
        if self.status >= 400 or error is not None:
            return "rejected"
        return "ok"


_OF_LEGS = (
    *("model", "stream", "conversation", "dropped", "answered_by", "bypass", "waited"),
    *("disagg_request_id", "context_worker", "generation_worker", "retries", "generation_retries"),
    *("queue_began", "queue_ended", "context_sent", "context_done", "generation_sent", "generation_head"),
)

RECORD = "disagg.record"
"""Where the record is in the ASGI scope."""
