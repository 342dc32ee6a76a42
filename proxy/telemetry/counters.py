"""Counts finished requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.telemetry import names
from proxy.telemetry.series import Counter, Histogram

if TYPE_CHECKING:
    from starlette.types import Scope

    from proxy.lifecycle.record import RequestRecord
    from proxy.telemetry.model_names import ModelNames
    from proxy.telemetry.shared import MetricsRow

_CONTEXT = ("context",)
_GENERATION = ("generation",)


class Counters:
    """`settle` is called once per finished request; the counts go into this process's row.

    Args:
        row: of the process.
        models: which model names may become labels.
    """

    def __init__(self, row: MetricsRow, models: ModelNames) -> None:
        self._models = models
        self._requests = Counter(row, names.REQUESTS)
        self._errors = Counter(row, names.ERRORS)
        self._request_bytes = Counter(row, names.REQUEST_BYTES)
        self._response_bytes = Counter(row, names.RESPONSE_BYTES)
        self._dropped_fields = Counter(row, names.DROPPED_FIELDS)
        self._retries = Counter(row, names.RETRIES)
        self._bypasses = Counter(row, names.BYPASSES)
        self._cut_inside_event = Counter(row, names.CUT_INSIDE_EVENT)
        self._queue = Histogram(row, names.QUEUE_SECONDS)
        self._seconds = Histogram(row, names.REQUEST_SECONDS)
        self._overhead = Histogram(row, names.OVERHEAD_SECONDS)
        self._legs = Histogram(row, names.LEG_SECONDS)
        self._worker = Histogram(row, names.WORKER_SECONDS)
        self._hand_off = Histogram(row, names.HAND_OFF_SECONDS)
        self._first_byte = Histogram(row, names.FIRST_BYTE_SECONDS)
        self._generation_first_byte = Histogram(row, names.GENERATION_FIRST_BYTE_SECONDS)

    def settle(self, record: RequestRecord, scope: Scope) -> None:
        """Count a finished request."""
        route = (record.route,)
        outcome = record.outcome
        stream = "true" if record.stream else "false"
        model = self._models.label(record.model)
        self._requests.add(1, (record.route, model, stream, outcome))
        self._request_bytes.add(record.body_size, route)
        self._response_bytes.add(record.response_size, route)
        if record.context_sent or record.generation_sent:
            self._phases(record, model, stream)
        if record.queue_ended:
            self._queue.observe(record.queue_ended - record.queue_began, (outcome,))
        elif record.context_sent or record.generation_sent:
            self._queue.observe(0.0, (outcome,))
        if record.error is not None:
            self._errors.add(1, (record.error.source.value, record.error.code))
        if record.retries:
            self._retries.add(record.retries - record.generation_retries, _CONTEXT)
            self._retries.add(record.generation_retries, _GENERATION)
        if record.bypass:
            self._bypasses.add(1, (record.bypass,))
        if record.cut_inside_event:
            self._cut_inside_event.add(1)
        for name in record.dropped:
            self._dropped_fields.add(1, (name,))

    def _phases(self, record: RequestRecord, model: str, stream: str) -> None:
        now = record.ended
        seconds = now - record.received
        self._seconds.observe(seconds, (model, stream))
        self._overhead.observe(seconds - record.waited, (stream,))
        sent, context_done = record.generation_sent, record.context_done
        if context_done:
            self._legs.observe(context_done - record.context_sent, _CONTEXT)
            if record.context_worker is not None:
                worker = ("context", record.context_worker.address.text)
                self._worker.observe(context_done - record.context_sent, worker)
        if not sent:
            return
        self._legs.observe(now - sent, _GENERATION)
        if sent >= context_done > 0:
            self._hand_off.observe(sent - context_done)
        if record.stream and record.first_byte > sent:
            self._first_byte.observe(record.first_byte - record.received, (model,))
            self._generation_first_byte.observe(record.first_byte - sent)
            if record.generation_worker is not None:
                worker = ("generation", record.generation_worker.address.text)
                self._worker.observe(record.first_byte - sent, worker)
