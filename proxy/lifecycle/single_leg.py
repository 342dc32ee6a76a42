"""The life of a request that one worker serves alone, whatever it is: admit, place, send, relay.

It is sent again only if no connection could be made, or, with a method that may be repeated (RFC 9110 section 9.2.2),
if the worker closed an idle connection at that moment: nothing is known of what such a request does.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from proxy.errors import BrokenAnswer, LegFault, NotReady, Retry, Source, WorkersBusy
from proxy.lifecycle.admit import try_admit, wait_for_permit
from proxy.lifecycle.leg import Leg
from proxy.lifecycle.relay import OpenStream, relay
from proxy.wire.members import is_null
from proxy.workers.outcome import LegOutcome, outcome_of_status, retry_after_seconds
from proxy.workers.worker import Role

if TYPE_CHECKING:
    from proxy.config.address import WorkerAddress
    from proxy.lifecycle.passage import Passage
    from proxy.upstream.connection import Answer

_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})
_SOURCES = {Role.CONTEXT: Source.CONTEXT, Role.GENERATION: Source.GENERATION}


class SingleLeg:
    """One such request.

    Args:
        passage: of the request; its headers name the content type.
        role: whose workers are asked.
        method: of the request.
        body: may be empty.
        streams: the answer is relayed as it comes if its length is not known before.
        null_passes: `null` is an answer like any other; if not, it is that of a worker that is shutting down.
    """

    def __init__(
        self,
        passage: Passage,
        role: Role,
        method: str,
        body: bytes,
        *,
        streams: bool = True,
        null_passes: bool = True,
    ) -> None:
        self._passage = passage
        self._role = role
        self._source = _SOURCES[role]
        self._method = method
        self._body = body
        self._streams = streams
        self._null_passes = null_passes

    async def serve(self) -> None:
        """Serve the request to its end.

        Raises:
            ProxyError: nothing has been sent to the client; the caller answers.
        """
        passage = self._passage
        service, record, watch = passage.service, passage.record, passage.watch
        service.retry_budget.note_request()
        try:
            permit = try_admit(service, record, watch)
            if permit is None:
                permit = await wait_for_permit(service, record, watch, passage.priority)
            with permit:
                if self._role is Role.GENERATION:
                    permit.context_done()
                stream = await self._until_answered()
                if stream is not None:
                    self._body = b""
                    record.stream = True
                    await relay(passage, stream)
                    if isinstance(record.error, LegFault):
                        record.error.source = self._source
                record.answered_by = self._source.value
        finally:
            watch.close()
            record.waited = watch.waited
            if self._role is Role.CONTEXT and record.context_sent:
                record.context_done = perf_counter()

    async def _until_answered(self) -> OpenStream | None:
        passage = self._passage
        retries = passage.service.settings.max_retries
        failed: list[WorkerAddress] = []
        fresh = False
        last: LegFault | None = None
        while True:
            try:
                sent = await self._send(failed, fresh=fresh)
            except (NotReady, WorkersBusy):
                if last is None:
                    raise
                raise last from None
            except LegFault as error:
                error.source = self._source
                last = error
                if error.retry is Retry.REUSED_ONLY and not fresh and self._method in _REPEATABLE:
                    fresh = True
                    passage.record.retries += 1
                    continue
                record = passage.record
                worker = record.context_worker if self._role is Role.CONTEXT else record.generation_worker
                if error.retry is not Retry.UNSENT or retries == 0 or worker is None:
                    raise
                retries -= 1
                failed.append(worker.address)
                if not await passage.pause(passage.pool(self._role), failed, error):
                    raise
                continue
            if isinstance(sent, OpenStream):
                return sent
            await passage.pass_on(sent, self._source.value)
            return None

    async def _send(self, failed: list[WorkerAddress], *, fresh: bool) -> Answer | OpenStream:
        passage, record = self._passage, self._passage.record
        proxy = passage.service.settings.proxy
        reservation = passage.pool(self._role).reserve(passage.placement, avoid=failed)
        with reservation as worker:
            if self._role is Role.CONTEXT:
                record.context_worker, record.context_sent = worker, perf_counter()
                seconds = proxy.timeout_context
            else:
                record.generation_worker, record.generation_sent = worker, perf_counter()
                seconds = proxy.timeout_first_byte
            phase = "context" if self._role is Role.CONTEXT else "first byte"
            target = b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (
                self._method.encode(),
                passage.target,
                worker.address.authority,
            )
            leg = Leg(worker, target, passage.headers, passage.watch, phase=phase, seconds=seconds)
            head = await leg.head((self._body,) if self._body else (), fresh=fresh)
            if self._role is Role.GENERATION:
                record.generation_head = perf_counter()
            if self._streams and head.status == 200 and head.get(b"content-length") is None:
                reservation.answers()
                reservation.hand_on()
                return OpenStream(leg, head, reservation)
            answer = await leg.rest()
            status = answer.head.status
            if status == 200 and not self._null_passes and is_null(answer.body.strip()):
                raise BrokenAnswer("the worker answered null")
            # That a route is not there, or does not like a request, says nothing about the worker's legs.
            says_nothing = 400 <= status < 500 and status != 429
            reservation.report(
                LegOutcome.CANCELLED if says_nothing or status == 501 else outcome_of_status(status),
                retry_after=retry_after_seconds(answer.head.get(b"retry-after")),
            )
            return answer
