"""What the metrics tell of those who wait, are refused, or have left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.telemetry import names
from proxy.telemetry.gauges import Source

if TYPE_CHECKING:
    from proxy.lifecycle.service import Service


def admission_metrics(service: Service) -> list[tuple[names.Metric, Source]]:
    """The sources; the counts are kept by the admission and the drains themselves."""
    admission, orphans = service.admission, service.orphans
    return [
        (names.ADMITTED_REQUESTS, lambda: [((), admission.in_flight)]),
        (names.QUEUED_REQUESTS, lambda: [((), admission.queued)]),
        (names.QUEUED_BYTES, lambda: [((), admission.queued_bytes)]),
        (names.PAUSED, lambda: [((), admission.paused)]),
        (names.REFUSED, lambda: [((code,), number) for code, number in admission.refused.items()]),
        (names.ORPHAN_LEGS, lambda: [((), orphans.running)]),
        (names.ORPHANS, lambda: [((outcome,), number) for outcome, number in orphans.outcomes.items()]),
    ]
