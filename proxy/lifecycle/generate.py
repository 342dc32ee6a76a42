"""The generation leg: sent to a worker that can take the hand-off, its status looked at, its answer passed on.

A hand-off is taken once, so this leg moves to another worker only when none can have taken it: no connection was
made, the worker refused before it looked (429, 503), or the connection ended before the request was written. A
connection that had been idle and ended without one byte is tried once more, fresh, with the same id; if its worker
had taken the hand-off after all, whoever gets the leg next answers 400, and so does a worker that finds the context
worker dead. When the leg fails so or otherwise and the client has got nothing, `GenerationFailed` asks for one whole
new pass.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from proxy.errors import (
    Aborted,
    BrokenAnswer,
    ClientGone,
    LegFault,
    LegTimeout,
    NotReady,
    Retry,
    Source,
    WorkersBusy,
)
from proxy.lifecycle.relay import OpenStream
from proxy.lifecycle.retry import REFUSED_STATUSES, RETRIABLE_STATUSES
from proxy.wire.answers import clean_answer
from proxy.wire.members import is_null
from proxy.wire.rewriting import Rewriters
from proxy.workers.outcome import outcome_of_status, retry_after_seconds
from proxy.workers.worker import Role

if TYPE_CHECKING:
    from proxy.lifecycle.generation_legs import GenerationLegs
    from proxy.lifecycle.passage import Passage
    from proxy.upstream.connection import Answer
    from proxy.workers.reservation import Reservation

_EVENT_STREAM = b"text/event-stream"


class GenerationFailed(Exception):
    """The hand-off is lost and the client has got nothing: `failure` is what to tell it if there is no other pass."""

    def __init__(self, failure: Answer | LegFault) -> None:
        super().__init__()
        self.failure = failure


class Generation:
    """The generation leg of one request.

    Args:
        passage: of the request.
        legs: makes the leg for a worker.
    """

    __slots__ = ("_legs", "_passage", "_retries", "_sent")

    def __init__(self, passage: Passage, legs: GenerationLegs) -> None:
        self._passage = passage
        self._legs = legs
        self._retries = passage.service.settings.max_retries
        self._sent = False

    async def run(self) -> OpenStream | None:
        """Serve the request, or hand the context worker's KV over to nobody.

        Returns a stream that has begun, for the caller to relay: by then nothing here is needed any more. None when
        the client has got a whole answer.

        Raises:
            GenerationFailed: see there.
            ProxyError: nothing has been sent to the client.
        """
        try:
            return await self._until_taken()
        except GenerationFailed:
            self._legs.lose()
            raise
        except (ClientGone, Aborted, NotReady, WorkersBusy, LegTimeout) as error:
            if not self._sent:
                self._legs.abandon()
            elif isinstance(error, ClientGone | Aborted | LegTimeout):
                self._legs.lose()  # closed before the first byte: the worker may not have pulled the KV yet
            raise

    async def _until_taken(self) -> OpenStream | None:
        passage = self._passage
        fresh = taught = False
        last: Answer | LegFault | None = None
        perhaps_taken: LegFault | None = None  # what ended an idle connection with the leg on it
        while True:
            try:
                sent = await self._send(fresh=fresh)
                if isinstance(sent, OpenStream):
                    return sent
                last = sent
                if not taught and passage.learn(last, passage.record.generation_worker):
                    taught = True
                    passage.record.retries += 1
                    passage.record.generation_retries += 1
                    continue
                status = last.head.status
                if status in RETRIABLE_STATUSES - REFUSED_STATUSES:
                    self._avoid()
                    raise GenerationFailed(last)
                if status not in REFUSED_STATUSES:
                    if status == 400 and (lost := perhaps_taken or self._legs.context_lost):
                        raise GenerationFailed(lost)
                    if status != 200:
                        self._legs.lose()
                    break
            except (NotReady, WorkersBusy):
                if last is None:
                    raise
                self._legs.abandon()
                break  # what the last worker said tells the client more
            except LegFault as error:
                error.source = Source.GENERATION
                last = error
                if error.retry is Retry.REUSED_ONLY and not fresh:
                    fresh = True
                    perhaps_taken = error
                    passage.record.retries += 1
                    passage.record.generation_retries += 1
                    continue
                if error.retry is not Retry.UNSENT:
                    if isinstance(error, LegTimeout):
                        raise
                    self._avoid()
                    raise GenerationFailed(error) from None
            # This one has not taken the hand-off: another worker may.
            self._sent = False
            if not await self._may_move(last):
                self._legs.abandon()
                break
            fresh = False
        if isinstance(last, LegFault):
            raise last
        await passage.pass_on(last, Source.GENERATION.value)
        return None

    async def _may_move(self, last: Answer | LegFault) -> bool:
        passage = self._passage
        if self._retries == 0:
            return False
        self._retries -= 1
        self._avoid()
        return await passage.pause(passage.pool(Role.GENERATION), passage.failed, last)

    def _avoid(self) -> None:
        passage = self._passage
        if passage.record.generation_worker is not None:
            passage.failed.append(passage.record.generation_worker.address)

    async def _send(self, *, fresh: bool) -> Answer | OpenStream:
        """Send the leg once; its answer is judged, a stream is left to the caller."""
        passage = self._passage
        record = passage.record
        near = self._legs.near
        reservation = passage.pool(Role.GENERATION).reserve(
            passage.placement, exclude=(near.address,) if near else (), avoid=passage.failed, near=near
        )
        with reservation as worker:
            body, headers = self._legs.make(worker)
            record.generation_worker = worker
            record.generation_sent = perf_counter()
            timeout = passage.service.settings.proxy.timeout_first_byte
            leg = passage.leg(worker, headers, "first byte", timeout)
            try:
                if passage.request.stream:
                    head = await leg.head(body, fresh=fresh)
                    record.generation_head = perf_counter()
                    if head.status == 200 and (head.get(b"content-type") or b"").startswith(_EVENT_STREAM):
                        reservation.answers()
                        reservation.hand_on()
                        return OpenStream(leg, head, reservation)
                    # Not a stream after all: an error, or a worker that answers in one piece.
                    answer = await leg.rest()
                else:
                    answer = await leg.collect(body, fresh=fresh)
                    record.generation_head = perf_counter()
            finally:
                self._sent = leg.sent
            _judge(answer, reservation, passage)
            return answer


def _judge(answer: Answer, reservation: Reservation, passage: Passage) -> None:
    """Report a complete answer's outcome; make a 200 fit for the client.

    Raises:
        BrokenAnswer: the body is `null` (CppExecutorError: the worker is shutting down).
    """
    if answer.head.status == 200:
        if is_null(answer.body.strip()):
            raise BrokenAnswer("the worker answered null")
        answer.body = clean_answer(answer.body)
        if passage.rewriters:
            answer.body = Rewriters(passage.rewriters).answer(answer.body)
    reservation.report(
        outcome_of_status(answer.head.status),
        retry_after=retry_after_seconds(answer.head.get(b"retry-after")),
    )
