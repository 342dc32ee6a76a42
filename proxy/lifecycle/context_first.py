"""The life of a request, context first; read it from top to bottom.

    admit       at once or through the queue; only when both legs have room
    prefill     place the context leg, send it, read the hand-off out of its answer
    finish      ... unless the context worker has answered completely by itself
    generate    place the generation leg, send it, look at its status before the client gets anything
    relay       the answer to the client, as it comes

Two forms bypass prefill: `fallback_aggregated` when no context worker is left, and the benchmark of generation workers
alone (`proxy.lifecycle.generation_legs`).

A complete HTTP answer of a worker goes to the client as it is, in every phase, once the retries are used up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.errors import BrokenAnswer, LegFault, NotReady, Source
from proxy.lifecycle.admit import try_admit, wait_for_permit
from proxy.lifecycle.generate import Generation, GenerationFailed
from proxy.lifecycle.generation_legs import Aggregated, GenerationOnly, HandedOff
from proxy.lifecycle.prefill import prefill
from proxy.lifecycle.relay import OpenStream, relay
from proxy.lifecycle.rewriters import choose_rewriters
from proxy.lifecycle.worker_timing import combined
from proxy.wire import finished
from proxy.wire.errors import WireError
from proxy.wire.handoff import ContextAnswer, Outcome
from proxy.wire.responses import response_stream
from proxy.wire.rewriting import Rewriters

if TYPE_CHECKING:
    from proxy.admission.permit import Permit
    from proxy.lifecycle.passage import Passage
    from proxy.upstream.connection import Answer


async def serve_context_first(passage: Passage) -> None:
    """Serve a request to its end.

    Raises:
        ProxyError: nothing has been sent to the client; the caller answers.
    """
    service, record, watch = passage.service, passage.record, passage.watch
    service.retry_budget.note_request()
    try:
        permit = try_admit(service, record, watch)
        if permit is None:
            permit = await wait_for_permit(service, record, watch, passage.priority)
        with permit:
            try:
                stream = await _both_legs(passage, permit)
            except GenerationFailed as first:
                stream = await _second_pass(passage, permit, first.failure)
            if stream is not None:
                passage.forget_prompt()
                await relay(passage, stream)
    finally:
        watch.close()
        record.waited = watch.waited


async def _both_legs(passage: Passage, permit: Permit) -> OpenStream | None:
    """Both legs up to the beginning of a stream, which is returned, or to the end of another answer."""
    proxy = passage.service.settings.proxy
    if proxy.benchmark_gen_only:
        permit.context_done()
        return await Generation(passage, GenerationOnly(passage)).run()
    try:
        answer = await prefill(passage)
    except NotReady:
        if proxy.fallback_aggregated == "never":
            raise
        permit.context_done()
        return await Generation(passage, Aggregated(passage)).run()
    permit.context_done()
    if not isinstance(answer, ContextAnswer):
        await passage.pass_on(answer, Source.CONTEXT.value)
        return None
    if answer.outcome is not Outcome.HAND_OFF:
        await _finish(passage, answer)
        return None
    passage.learn_keys(answer)
    return await Generation(passage, HandedOff(passage, answer)).run()


async def _second_pass(passage: Passage, permit: Permit, failure: Answer | LegFault) -> OpenStream | None:
    """The hand-off is lost and the client has got nothing: prefill and generate once more, if the budget allows."""
    if passage.service.settings.max_retries and passage.service.retry_budget.take():
        passage.record.retries += 1
        passage.watch.check()
        try:
            return await _both_legs(passage, permit)
        except GenerationFailed as second:
            failure = second.failure
    if isinstance(failure, LegFault):
        raise failure
    await passage.pass_on(failure, Source.GENERATION.value)
    return None


async def _finish(passage: Passage, answer: ContextAnswer) -> None:
    """The context worker's answer is the whole answer."""
    request = passage.request
    passage.rewriters = choose_rewriters(passage, answer)
    passage.record.answered_by = Source.CONTEXT.value
    if request.stream:
        try:
            body = (
                response_stream(answer)
                if request.responses
                else finished.as_stream(answer, chat=request.chat, include_usage=request.include_usage)
            )
        except WireError as error:
            fault = BrokenAnswer(str(error))
            fault.source = Source.CONTEXT
            raise fault from None
        content_type = b"text/event-stream; charset=utf-8"
        if passage.rewriters:
            body = Rewriters(passage.rewriters).stream(body)
    else:
        body, content_type = finished.as_json(answer), b"application/json"
        if passage.rewriters:
            body = Rewriters(passage.rewriters).answer(body)
    headers = [(b"content-type", content_type)]
    if passage.worker_metrics is not None and not request.stream:
        headers += combined(passage.worker_metrics, [], passage.record)
    await passage.respond(200, headers, body)
