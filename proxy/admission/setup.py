"""Admission as configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.admission.admission import Admission
from proxy.admission.board import AdmissionBoard
from proxy.admission.capacity import PoolsCapacity, Sizes
from proxy.admission.limits import Limits

if TYPE_CHECKING:
    import asyncio

    from proxy.config.settings import ProxySettings
    from proxy.fleet.member import Member


def make_admission(
    proxy: ProxySettings,
    *,
    loop: asyncio.AbstractEventLoop,
    member: Member,
    context: Sizes,
    generation: Sizes,
) -> Admission:
    """Admission for one process.

    Args:
        proxy: the limits.
        loop: for timers.
        member: the process's place in its fleet, whose limits they are.
        context, generation: tell the batch sizes of the workers that can be used now.
    """
    limits = Limits(
        max_inflight=proxy.max_inflight,
        max_inflight_per_key=proxy.max_inflight_per_key,
        max_queued=proxy.max_queued,
        max_queued_bytes=proxy.max_queued_bytes,
        queue_order=proxy.queue_order,
        pause_mode=proxy.pause_mode,
    )
    capacity = None
    if proxy.max_inflight_per_context_worker or proxy.max_inflight_per_generation_worker:
        capacity = PoolsCapacity(
            context,
            generation,
            per_context_worker=proxy.max_inflight_per_context_worker,
            per_generation_worker=proxy.max_inflight_per_generation_worker,
            clock=loop.time,
        )
    return Admission(limits, call_later=loop.call_later, capacity=capacity, board=_board(member))


def _board(member: Member) -> AdmissionBoard | None:
    if member.processes == 1:
        return None
    rows = member.metrics.rows[: member.processes]
    return AdmissionBoard(member.row, [row for index, row in enumerate(rows) if index != member.index])
