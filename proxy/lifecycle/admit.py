"""The admit phase: into the proxy at once, or through the queue."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.admission.permit import Permit
    from proxy.lifecycle.record import RequestRecord
    from proxy.lifecycle.service import Service
    from proxy.lifecycle.watch import Watch


def try_admit(service: Service, record: RequestRecord, watch: Watch) -> Permit | None:
    """A permit if there is one now; else `wait_for_permit` has to be awaited.

    Raises:
        KeyLimitReached: too many requests of this API key are here.
    """
    permit = service.admission.enter(record.key)
    if permit is not None:
        permit.abort = watch.abort
        permit.request_id = record.request_id
    return permit


async def wait_for_permit(service: Service, record: RequestRecord, watch: Watch, priority: float) -> Permit:
    """Wait in the queue.

    Args:
        service, record, watch: of the request.
        priority: 0 to 1, higher first.

    Raises:
        Overloaded, Paused: the request may not even wait.
        QueueTimeout, LegTimeout, ClientGone: it waited in vain.
    """
    watch.check()
    waiter = service.admission.wait(
        service.loop.create_future(),
        key=record.key,
        size=record.body_size,
        priority=priority,
        request_id=record.request_id,
        abort=watch.abort,
    )
    record.queue_began = perf_counter()
    watch.guard(waiter, 0, "queue", service.settings.proxy.timeout_queue)
    try:
        return await waiter.permit()
    finally:
        watch.release()
        record.queue_ended = perf_counter()
