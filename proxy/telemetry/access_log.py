"""One line per request: who was asked, how long each phase took, how it ended. No contents, no keys."""

from __future__ import annotations

import logging
from typing import Any

from starlette.types import Scope

from proxy.lifecycle.record import RequestRecord

_logger = logging.getLogger("proxy.access")

# Probes and scrapes come every second and say nothing.
_QUIET = frozenset({"/health", "/health/live", "/health/ready", "/metrics", "/prometheus/metrics"})


def log_access(record: RequestRecord, scope: Scope) -> None:
    """Write the line for a finished request."""
    if record.route in _QUIET:
        return
    fields = access_fields(record, scope)
    _logger.info(
        "%s", " ".join(f"{name}={value}" for name, value in fields.items()), extra={"fields": fields}
    )


def access_fields(record: RequestRecord, scope: Scope) -> dict[str, Any]:
    """The fields of the line; times are milliseconds, and phases that were not reached are left out."""
    fields: dict[str, Any] = {
        "request_id": record.request_id,
        "method": scope["method"],
        "path": record.route,
        "status": record.status,
        "outcome": record.outcome,
        "stream": str(record.stream).lower(),
        "bytes_in": record.body_size,
        "bytes_out": record.response_size,
    }
    if record.key:
        fields["key"] = record.key
    if record.error is not None:
        fields["error"] = f"{record.error.source.value};{record.error.code}"
    if record.disagg_request_id:
        fields["disagg_request_id"] = record.disagg_request_id
    for name, worker in (("ctx", record.context_worker), ("gen", record.generation_worker)):
        if worker is not None:
            fields[name] = worker.address.text
    for name, start, end in (
        ("queue_ms", record.queue_began, record.queue_ended),
        ("ctx_ms", record.context_sent, record.context_done),
        ("gen_head_ms", record.generation_sent, record.generation_head),
        ("first_byte_ms", record.received, record.first_byte),
    ):
        if start and end:
            fields[name] = round((end - start) * 1000, 2)
    return fields
