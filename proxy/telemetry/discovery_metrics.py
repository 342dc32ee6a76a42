"""What the metrics tell of the sources of workers."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.telemetry import names
from proxy.telemetry.gauges import Sample, Source
from proxy.workers.discovery.discovery import Discovery


def discovery_metrics(discovery: Discovery) -> list[tuple[names.Metric, Source]]:
    """The sources of the gauges, in whichever process follows the sources of workers."""

    def age() -> Iterator[Sample]:
        for status in discovery.statuses:
            yield (status.source,), status.age_seconds

    def workers() -> Iterator[Sample]:
        for status in discovery.statuses:
            yield (status.source,), status.workers

    def errors() -> Iterator[Sample]:
        for status in discovery.statuses:
            yield (status.source,), status.errors

    return [
        (names.DISCOVERY_AGE_SECONDS, age),
        (names.DISCOVERY_WORKERS, workers),
        (names.DISCOVERY_ERRORS, errors),
    ]
