"""Counts finished requests."""

from __future__ import annotations

from starlette.types import Scope

from proxy.lifecycle.record import RequestRecord
from proxy.telemetry import names
from proxy.telemetry.series import Counter, Histogram
from proxy.telemetry.shared import MetricsRow


class Counters:
    """`settle` is called once per finished request; the counts go into this process's row."""

    def __init__(self, row: MetricsRow) -> None:
        self._requests = Counter(row, names.REQUESTS)
        self._request_bytes = Counter(row, names.REQUEST_BYTES)
        self._response_bytes = Counter(row, names.RESPONSE_BYTES)
        self._dropped_fields = Counter(row, names.DROPPED_FIELDS)
        self._queue_seconds = Histogram(row, names.QUEUE_SECONDS)
        self._retries = Counter(row, names.RETRIES)
        self._bypasses = Counter(row, names.BYPASSES)
        self._cut_inside_event = Counter(row, names.CUT_INSIDE_EVENT)

    def settle(self, record: RequestRecord, scope: Scope) -> None:
        """Count a finished request."""
        route = (record.route,)
        self._requests.add(1, (record.route, "true" if record.stream else "false", record.outcome))
        self._request_bytes.add(record.body_size, route)
        self._response_bytes.add(record.response_size, route)
        if record.queue_ended:
            waited = record.queue_ended - record.queue_began
            self._queue_seconds.observe(waited, (record.outcome,))
        if record.retries:
            self._retries.add(record.retries)
        if record.bypass:
            self._bypasses.add(1, (record.bypass,))
        if record.cut_inside_event:
            self._cut_inside_event.add(1)
        for name in record.dropped:
            self._dropped_fields.add(1, (name,))
