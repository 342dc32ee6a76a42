"""Compares a worker's 4xx answers with its peers'. Pure.

TensorRT-LLM answers nearly every failure with 400, so a broken worker can look like one with bad clients. Clients are
the same for all workers of a pool: one that refuses nearly everything while the others refuse hardly anything is
broken.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.workers.recent import LENGTH, RecentOutcomes

_HARDLY_ANYTHING = 0.1


def refuses_alone(suspect: RecentOutcomes, peers: Iterable[RecentOutcomes]) -> bool:
    """Whether over 90 % of the suspect's last 20 outcomes are 4xx and under 10 % of its peers' together.

    The peers must have had 20 legs together: without them there is nothing to compare with.
    """
    if not suspect.mostly_client_errors:
        return False
    outcomes = client_errors = 0
    for peer in peers:
        outcomes += len(peer)
        client_errors += peer.client_errors
    return outcomes >= LENGTH and client_errors < outcomes * _HARDLY_ANYTHING
