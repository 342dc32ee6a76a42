"""What the metrics tell of prompts that became token ids in the proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.telemetry import names
from proxy.telemetry.gauges import Source

if TYPE_CHECKING:
    from proxy.lifecycle.service import Service


def tokenisation_metrics(service: Service) -> list[tuple[names.Metric, Source]]:
    """The sources; none when it is not configured."""
    tokenisation = service.tokenisation
    if tokenisation is None:
        return []
    trust = tokenisation.trust
    return [
        (names.TOKENISATIONS, tokenisation.outcomes.items),
        (
            names.TOKENISATION_COMPARISONS,
            lambda: [((result,), number) for result, number in trust.results.items()],
        ),
        (names.TOKENISATION_ON, lambda: [((), not trust.lost)]),
    ]
