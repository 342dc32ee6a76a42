"""Counts of finished requests: plain dictionaries, since an increment must cost well under a microsecond."""

from __future__ import annotations

from collections import Counter

from starlette.types import Scope

from proxy.lifecycle.record import RequestRecord

# Field names come from clients: as many as this get a label of their own, the rest is `other`.
_MOST_FIELDS = 200


class Counters:
    """What `collector` renders; `settle` is called once per finished request."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, bool, str]] = Counter()
        self.request_bytes: Counter[str] = Counter()
        self.response_bytes: Counter[str] = Counter()
        self.dropped_fields: Counter[str] = Counter()
        self.retries = 0

    def settle(self, record: RequestRecord, scope: Scope) -> None:
        """Count a finished request."""
        route = record.route
        self.requests[route, record.stream, record.outcome] += 1
        self.request_bytes[route] += record.body_size
        self.response_bytes[route] += record.response_size
        self.retries += record.retries
        for name in record.dropped:
            known = name in self.dropped_fields or len(self.dropped_fields) < _MOST_FIELDS
            self.dropped_fields[name if known else "other"] += 1
