"""One line per request: who was asked, how long each phase took, how it ended. No contents, no keys."""

from __future__ import annotations

import logging
from hashlib import blake2b
from typing import Any

from starlette.types import Scope

from proxy.lifecycle.record import RequestRecord
from proxy.telemetry.log_handler import ACCESS, LogHandler

_logger = logging.getLogger(ACCESS)
_root = logging.getLogger()

QUIET = frozenset({"/health", "/health/live", "/health/ready", "/metrics", "/prometheus/metrics"})
"""Probes and scrapes come every second and say nothing."""


def log_access(record: RequestRecord, scope: Scope) -> None:
    """Write the line for a finished request."""
    if record.route in QUIET or not _logger.isEnabledFor(logging.INFO):
        return
    fields = access_fields(record, scope["method"])
    handlers = _root.handlers
    if len(handlers) == 1 and isinstance(handlers[0], LogHandler):
        handlers[0].access(fields)
    else:
        # Somebody else has set the logging up.
        _logger.info("%s", _Line(fields), extra={"fields": fields})


class _Line:
    """The fields as text, made only if the format needs it."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        return " ".join([f"{name}={value}" for name, value in self._fields.items()])


def access_fields(record: RequestRecord, method: str) -> dict[str, Any]:
    """The fields of the line; times are milliseconds, and phases that were not reached are left out.

    A conversation's id may be a secret of its client; the hash still tells which requests belong together.
    """
    fields: dict[str, Any] = {
        "request_id": record.request_id,
        "method": method,
        "path": record.route,
        "status": record.status,
        "outcome": record.outcome,
        "stream": "true" if record.stream else "false",
        "bytes_in": record.body_size,
        "bytes_out": record.response_size,
    }
    if record.key:
        fields["key"] = record.key
    if record.error is not None:
        fields["error"] = f"{record.error.source.value};{record.error.code}"
    if record.conversation:
        fields["conversation"] = blake2b(record.conversation.encode(), digest_size=6).hexdigest()
    if record.retries:
        fields["retries"] = record.retries
    if record.disagg_request_id:
        fields["disagg_request_id"] = record.disagg_request_id
    if record.context_worker is not None:
        fields["ctx"] = record.context_worker.address.text
    if record.generation_worker is not None:
        fields["gen"] = record.generation_worker.address.text
    for name, start, end in (
        ("queue_ms", record.queue_began, record.queue_ended),
        ("ctx_ms", record.context_sent, record.context_done),
        ("hand_off_ms", record.context_done, record.generation_sent),
        ("gen_head_ms", record.generation_sent, record.generation_head),
        ("first_byte_ms", record.received, record.first_byte),
        ("total_ms", record.received, record.ended),
    ):
        if start and end >= start:
            # `round` takes three times as long.
            fields[name] = int((end - start) * 100_000 + 0.5) / 100
    if record.waited:
        fields["overhead_ms"] = int((record.ended - record.received - record.waited) * 1e6 + 0.5) / 1000
    return fields
