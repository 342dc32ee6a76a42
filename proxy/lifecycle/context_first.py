"""The life of a request, context first; read it from top to bottom.

    admit       at once or through the queue; only when both legs have room
    prefill     place the context leg, send it, read the hand-off out of its answer
    finish      ... unless the context worker has answered completely by itself
    generate    place the generation leg, send it, look at its status before the client gets anything
    relay       the answer to the client, as it comes

A complete HTTP answer of a worker that is not a 200 goes to the client as it is, in every phase.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from proxy.errors import (
    Aborted,
    BrokenAnswer,
    ClientGone,
    ConnectFailed,
    LegFault,
    ProxyError,
    Retry,
    ShuttingDown,
    Source,
    error_body,
)
from proxy.lifecycle.admit import try_admit, wait_for_permit
from proxy.lifecycle.headers import to_client
from proxy.lifecycle.leg import Leg
from proxy.lifecycle.priority import DEFAULT_PRIORITY
from proxy.lifecycle.watch import Watch
from proxy.placement.policy import NO_PLACEMENT, Placement
from proxy.wire import finished, sse
from proxy.wire.answers import clean_answer
from proxy.wire.errors import BrokenHandOff
from proxy.wire.handoff import ContextAnswer, Outcome, read_context_answer
from proxy.wire.history import last_message
from proxy.wire.legs import context_body, generation_body, generation_parameters
from proxy.wire.members import JSONBytes, Members, is_null
from proxy.wire.signing import AUTH_HEADER, sign_parameters
from proxy.workers.worker import Role

if TYPE_CHECKING:
    from proxy.config.address import WorkerAddress
    from proxy.lifecycle.client import Client, Headers
    from proxy.lifecycle.record import RequestRecord
    from proxy.lifecycle.service import Service
    from proxy.upstream.connection import Answer
    from proxy.upstream.head import ResponseHead
    from proxy.wire.request import InferenceRequest
    from proxy.workers.pool import WorkerPool

_EVENT_STREAM = b"text/event-stream"


class ContextFirst:
    """One request in context-first order.

    Args:
        service: what all requests share.
        request: what the client asked, after the field policy.
        client: who asked.
        record: filled in on the way.
        target: path and query string for the workers.
        headers: encoded header lines for both legs.
        response_headers: headers that every answer to this client carries.
        total: seconds for the whole request, 0 = no limit.
        priority: in the queue, 0 to 1, higher first.
        placement: what the placement policies know of the request.
    """

    __slots__ = (
        "_client",
        "_headers",
        "_placement",
        "_priority",
        "_record",
        "_request",
        "_response_headers",
        "_service",
        "_target",
        "_watch",
    )

    def __init__(
        self,
        service: Service,
        request: InferenceRequest,
        client: Client,
        record: RequestRecord,
        *,
        target: bytes,
        headers: bytes,
        response_headers: Headers,
        total: float = 0.0,
        priority: float = DEFAULT_PRIORITY,
        placement: Placement = NO_PLACEMENT,
    ) -> None:
        self._service = service
        self._request = request
        self._client = client
        self._record = record
        self._target = target
        self._headers = headers
        self._response_headers = response_headers
        self._priority = priority
        self._placement = placement
        stall_timeout = service.settings.proxy.client_stall_timeout
        self._watch = Watch(client, service.loop, stall_timeout=stall_timeout, total=total)

    async def run(self) -> None:
        """Serve the request to its end.

        Raises:
            ProxyError: nothing has been sent to the client; the caller answers.
        """
        service, record, watch = self._service, self._record, self._watch
        try:
            permit = try_admit(service, record, watch)
            if permit is None:
                permit = await wait_for_permit(service, record, watch, self._priority)
            with permit:
                answer = await self._prefill()
                permit.context_done()
                if answer is None:
                    return
                if answer.outcome is Outcome.HAND_OFF:
                    await self._generate(answer)
                else:
                    await self._finish_from_context(answer)
        finally:
            watch.close()

    # Prefill

    async def _prefill(self) -> ContextAnswer | None:
        """Run the context leg; None when its answer was not a 200 and has been sent to the client.

        Nothing a client could notice has happened until it has answered, so a leg that failed without an answer is
        sent again: with a fresh id, since workers refuse an id they have seen, and to whichever worker is next.
        """
        attempts = 1 + self._service.settings.max_retries
        fresh = False
        failed: set[WorkerAddress] = set()
        while True:
            try:
                answer = await self._send_context_leg(fresh=fresh, avoid=failed)
                break
            except LegFault as error:
                error.source = Source.CONTEXT
                # A connection that the worker closed as we wrote costs no attempt, once.
                fresh = error.retry is Retry.REUSED_ONLY and not fresh
                attempts -= not fresh
                if not fresh and self._record.context_worker is not None:
                    failed.add(self._record.context_worker.address)
                if error.retry is Retry.NEVER or attempts == 0:
                    raise
                self._record.retries += 1
        self._record.context_done = perf_counter()
        if answer.head.status != 200:
            await self._pass_on(answer)
            return None
        try:
            return read_context_answer(answer.body)
        except BrokenHandOff as error:
            fault = BrokenAnswer(str(error))
            fault.source = Source.CONTEXT
            raise fault from None

    async def _send_context_leg(self, *, fresh: bool, avoid: set[WorkerAddress]) -> Answer:
        service, record = self._service, self._record
        record.disagg_request_id = service.request_ids.mint()
        body = context_body(
            self._request.members,
            record.disagg_request_id,
            service.version,
            base64_ids=service.base64_ids(self._request),
        )
        with self._pool(Role.CONTEXT).reserve(self._placement, avoid=avoid) as worker:
            record.context_worker = worker
            record.context_sent = perf_counter()
            seconds = service.settings.proxy.timeout_context
            leg = Leg(worker, self._target, self._headers, self._watch, phase="context", seconds=seconds)
            return await leg.collect((body,), fresh=fresh)

    def _pool(self, role: Role) -> WorkerPool:
        model = self._request.model
        return self._service.registry.pool(role, self._service.settings.proxy.model_aliases.get(model, model))

    async def _finish_from_context(self, answer: ContextAnswer) -> None:
        """The context worker's answer is the whole answer."""
        self._record.answered_by = Source.CONTEXT.value
        if self._request.stream:
            body = finished.as_stream(
                answer, chat=self._request.chat, include_usage=self._request.include_usage
            )
            content_type = b"text/event-stream; charset=utf-8"
        else:
            body, content_type = finished.as_json(answer), b"application/json"
        await self._respond(200, [(b"content-type", content_type)], body)

    # Generate

    async def _generate(self, answer: ContextAnswer) -> None:
        """Run the generation leg and relay its answer.

        A hand-off is taken once, so this leg is only sent again when it cannot have been seen: no connection was made,
        or a connection that had been idle ended without one byte of an answer.
        """
        service, record = self._service, self._record
        record.disagg_request_id = answer.request_id
        body, headers = self._generation_leg(answer, self._request.members)
        attempts = 1 + service.settings.max_retries
        near = record.context_worker
        exclude = (near.address,) if near else ()
        failed: set[WorkerAddress] = set()
        fresh = sent = False
        while True:
            try:
                with self._pool(Role.GENERATION).reserve(
                    self._placement, exclude=exclude, avoid=failed, near=near
                ) as worker:
                    record.generation_worker = worker
                    record.generation_sent = perf_counter()
                    seconds = service.settings.proxy.timeout_first_byte
                    leg = Leg(worker, self._target, headers, self._watch, phase="first byte", seconds=seconds)
                    try:
                        if self._request.stream:
                            await self._generate_stream(leg, body, fresh=fresh)
                        else:
                            await self._generate_json(leg, body, fresh=fresh)
                    finally:
                        sent = leg.sent
                return
            except LegFault as error:
                error.source = Source.GENERATION
                reused = error.retry is Retry.REUSED_ONLY
                attempts -= not reused
                if not (reused or isinstance(error, ConnectFailed)) or (reused and fresh) or attempts == 0:
                    raise
                fresh = reused
                if not fresh and record.generation_worker is not None:
                    failed.add(record.generation_worker.address)
                record.retries += 1
            except (ClientGone, Aborted):
                if not sent:
                    self._orphan(answer)
                raise

    def _orphan(self, answer: ContextAnswer) -> None:
        """The client left between the legs: see `proxy.lifecycle.orphans`."""
        orphans = self._service.orphans
        if self._service.settings.proxy.on_disconnect_after_prefill == "drop":
            orphans.drop()
            return
        members = {name: value for name, value in self._request.members.items() if name != "stream_options"}
        members["stream"] = msgspec.Raw(b"true")
        body, headers = self._generation_leg(answer, members)
        orphans.drain(self._pool(Role.GENERATION), self._target, headers, body)

    def _generation_leg(self, answer: ContextAnswer, members: Members) -> tuple[Sequence[JSONBytes], bytes]:
        request, settings = self._request, self._service.settings
        parameters = generation_parameters(answer)
        message = None
        if settings.gen_strip_message_history and request.chat and answer.token_ids is not None:
            message = None if self._service.is_harmony(request) else last_message(members)
        body = generation_body(members, answer, parameters, chat=request.chat, last_message=message)
        headers = self._headers
        if settings.internal_request_auth_key is not None:
            signature = sign_parameters(settings.internal_request_auth_key, parameters)
            if signature is not None:
                headers += b"%b: %b\r\n" % (AUTH_HEADER, signature)
        return body, headers

    async def _generate_json(self, leg: Leg, body: Sequence[JSONBytes], *, fresh: bool) -> None:
        answer = await leg.collect(body, fresh=fresh)
        self._record.generation_head = perf_counter()
        await self._pass_on_generated(answer)

    async def _generate_stream(self, leg: Leg, body: Sequence[JSONBytes], *, fresh: bool) -> None:
        head = await leg.head(body, fresh=fresh)
        self._record.generation_head = perf_counter()
        content_type = head.get(b"content-type") or b""
        if head.status == 200 and content_type.startswith(_EVENT_STREAM):
            await self._relay(leg, head)
        else:
            # Not a stream after all: an error, or a worker that answers in one piece.
            await self._pass_on_generated(await leg.rest())

    async def _pass_on_generated(self, answer: Answer) -> None:
        if answer.head.status == 200:
            if is_null(answer.body.strip()):
                raise BrokenAnswer(
                    "the worker answered null"
                )  # CppExecutorError: the worker is shutting down
            answer.body = clean_answer(answer.body)
        self._record.answered_by = Source.GENERATION.value
        await self._pass_on(answer)

    # Relay

    async def _relay(self, leg: Leg, head: ResponseHead) -> None:
        record = self._record
        record.answered_by = Source.GENERATION.value
        record.status = head.status
        self._watch.guard_relay(leg.connection, self._service.settings.proxy.timeout_idle)
        try:
            relayed = await self._client.relay(
                head.status, to_client(head, self._response_headers), leg.connection
            )
        except asyncio.CancelledError:
            # The drain's time is over.
            self._watch.abort(ClientGone("the proxy is stopping"))
            await self._break_off(ShuttingDown("the proxy is stopping"))
            raise
        except Exception:  # a server whose `send` raises what ASGI does not know
            self._watch.abort(ClientGone("the client cannot be reached"))
            raise
        finally:
            self._watch.release()
        record.first_byte = relayed.first_byte_at
        record.response_size = relayed.size
        error = relayed.error
        if error is None:
            return
        record.error = error
        if isinstance(error, ClientGone):
            record.status = error.status
            if not self._client.gone:  # it stopped reading
                await self._client.break_off(None)
        else:
            if isinstance(error, LegFault):
                error.source = Source.GENERATION
            await self._break_off(error)

    async def _break_off(self, error: ProxyError) -> None:
        """The status has been sent: an error event tells the client, unless it would land inside an event."""
        if self._client.between_events:
            await self._client.break_off(sse.event(error_body(error)))
        else:
            self._record.cut_inside_event = True
            await self._client.break_off(None)

    async def _pass_on(self, answer: Answer) -> None:
        await self._respond(answer.head.status, to_client(answer.head, []), answer.body)

    async def _respond(self, status: int, headers: Headers, body: bytes) -> None:
        record = self._record
        record.status = status
        record.response_size = len(body)
        record.first_byte = perf_counter()
        await self._client.respond(status, [*headers, *self._response_headers], body)
