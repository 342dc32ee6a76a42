"""A generation worker's stream on its way to the client, and what the client is told when it breaks off."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from proxy.errors import ClientGone, LegFault, ProxyError, ShuttingDown, Source
from proxy.lifecycle.headers import to_client
from proxy.lifecycle.rewriting import RewritingSink
from proxy.wire.rewriting import Rewriters
from proxy.workers.outcome import LegOutcome, outcome_of_error

if TYPE_CHECKING:
    from proxy.lifecycle.client import Through
    from proxy.lifecycle.leg import Leg
    from proxy.lifecycle.passage import Passage
    from proxy.upstream.head import ResponseHead
    from proxy.workers.reservation import Reservation


class OpenStream(NamedTuple):
    """A stream of which the head has been read.

    Attributes:
        leg: the generation leg, guarded by the passage's watch.
        head: of the worker's answer.
        reservation: the leg's place, to be entered again; hears how the stream ended.
    """

    leg: Leg
    head: ResponseHead
    reservation: Reservation


async def relay(passage: Passage, stream: OpenStream) -> None:
    """Relay a stream to its end; errors are told to the client here."""
    with stream.reservation:
        await _relay(passage, *stream)


async def _relay(passage: Passage, leg: Leg, head: ResponseHead, reservation: Reservation) -> None:
    record, client, watch = passage.record, passage.client, passage.watch
    record.answered_by = Source.GENERATION.value
    record.status = head.status
    watch.guard_relay(leg.connection, passage.service.settings.proxy.timeout_idle)
    try:
        headers = passage.complete(to_client(head, passage.response_headers))
        relayed = await client.relay(head.status, headers, leg.connection, _through(passage, head))
    except asyncio.CancelledError:
        # The drain's time is over.
        watch.abort(ClientGone("the proxy is stopping"))
        await _break_off(passage, ShuttingDown("the proxy is stopping"), head)
        raise
    except Exception:  # a server whose `send` raises what ASGI does not know
        watch.abort(ClientGone("the client cannot be reached"))
        raise
    finally:
        watch.release()
    record.first_byte = relayed.first_byte_at
    record.response_size = relayed.size
    error = relayed.error
    reservation.report(LegOutcome.OK if error is None else outcome_of_error(error))
    if error is None:
        return
    record.error = error
    if isinstance(error, ClientGone):
        record.status = error.status
        if not client.gone:  # it stopped reading
            await client.break_off(None)
    else:
        if isinstance(error, LegFault):
            error.source = Source.GENERATION
        await _break_off(passage, error, head)


def _through(passage: Passage, head: ResponseHead) -> Through | None:
    """What rewrites the stream, if anything has to."""
    if not passage.rewriters or head.get(b"content-encoding") not in (None, b"identity"):
        return None
    return partial(RewritingSink, rewriters=Rewriters(passage.rewriters), fail=passage.watch.abort)


async def _break_off(passage: Passage, error: ProxyError, head: ResponseHead) -> None:
    """The status has been sent: an error event tells the client, unless it would land inside an event or the answer
    has no events."""
    if not (head.get(b"content-type") or b"").startswith(b"text/event-stream"):
        await passage.client.break_off(None)
    elif passage.client.between_events:
        await passage.client.break_off(passage.error_event(error))
    else:
        passage.record.cut_inside_event = True
        await passage.client.break_off(None)
