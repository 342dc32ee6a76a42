"""The context leg, sent until a worker has answered or the retries are used up.

Nothing that a client could notice has happened until a context worker has answered, so a leg that failed, was answered
with a status that says nothing about the request, or without what must be in an answer, goes to another worker: with
a fresh id, since workers refuse an id they have seen, after a jittered pause, within the retry budget and the
request's deadline.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from proxy.errors import BrokenAnswer, ConnectionBroken, LegFault, NotReady, Retry, Source, WorkersBusy
from proxy.lifecycle.retry import RETRIABLE_STATUSES
from proxy.lifecycle.worker_timing import leg_metrics
from proxy.wire.errors import WireError
from proxy.wire.handoff import ContextAnswer, read_context_answer, read_response
from proxy.wire.legs import context_body
from proxy.workers.outcome import outcome_of_status, retry_after_seconds
from proxy.workers.worker import Role

if TYPE_CHECKING:
    from proxy.config.address import WorkerAddress
    from proxy.lifecycle.passage import Passage
    from proxy.tokenisation.frontend import FrontendTokenisation, Prompt
    from proxy.upstream.connection import Answer
    from proxy.wire.fields.accepted import Accepted


async def prefill(passage: Passage) -> ContextAnswer | Answer:
    """Run the context leg: what a 200 says, or the worker's last answer with any other status.

    Raises:
        LegFault: no worker gave a complete answer.
        NotReady, WorkersBusy: there is no worker to ask.
        ClientGone, LegTimeout, Aborted: the request is over.
    """
    record = passage.record
    failed: list[WorkerAddress] = []
    retries = passage.service.settings.max_retries
    last: ContextAnswer | Answer | LegFault | None = None
    fresh = taught = False
    tokenisation = passage.service.tokenisation
    prompt = None if tokenisation is None else await _tokenised(passage, tokenisation)
    while True:
        try:
            last = await _send(passage, failed, prompt, fresh=fresh)
            if isinstance(last, ContextAnswer):
                break
            if not taught and passage.learn(last, record.context_worker):
                taught = True
                record.retries += 1
                continue
            if last.head.status not in RETRIABLE_STATUSES:
                break
        except (NotReady, WorkersBusy):
            if last is None:
                raise
            break  # what the last worker said tells the client more
        except LegFault as error:
            error.source = Source.CONTEXT
            last = error
            if error.retry is Retry.REUSED_ONLY and not fresh:
                # The worker closed an idle connection just as we wrote: this is no failure of the leg.
                fresh = True
                record.retries += 1
                continue
            if isinstance(error, ConnectionBroken) and error.retry is Retry.NEVER:
                # A part of an answer has come, so the prefill was done: its KV may be held.
                passage.service.orphans.lose()
            elif error.retry is Retry.NEVER:
                break
        if retries == 0:
            break
        retries -= 1
        fresh = False
        if record.context_worker is not None:
            failed.append(record.context_worker.address)
        if not await passage.pause(passage.pool(Role.CONTEXT), failed, last):
            break
    if isinstance(last, LegFault):
        raise last
    if tokenisation is not None and prompt is not None and isinstance(last, ContextAnswer):
        tokenisation.compare(prompt, last.token_ids, record.request_id)
    return last


async def _tokenised(passage: Passage, tokenisation: FrontendTokenisation) -> Prompt | None:
    """The prompt, unless the worker is to tokenise."""
    service, request = passage.service, passage.request
    chat_in_array = request.chat and service.settings.gen_tokids_ctxbytes is False
    if request.responses or chat_in_array or service.is_harmony(request):
        return None
    accepted = service.registry.capabilities.common
    return await tokenisation.prompt(request.members, accepted, chat=request.chat)


async def _send(
    passage: Passage, failed: list[WorkerAddress], prompt: Prompt | None, *, fresh: bool
) -> ContextAnswer | Answer:
    service, record = passage.service, passage.record
    record.disagg_request_id = service.request_ids.mint()
    reservation = passage.pool(Role.CONTEXT).reserve(passage.placement, avoid=failed)
    with reservation as worker:
        accepted = service.accepted(worker)
        ids = _ids_for(prompt, accepted)
        body = context_body(
            passage.request.members,
            record.disagg_request_id,
            accepted,
            base64_ids=service.base64_ids(passage.request),
            without=service.withheld(worker, passage.request),
            conversation=passage.request.conversation,
            token_ids=ids,
        )
        record.context_worker = worker
        record.context_sent, record.context_done = perf_counter(), 0.0
        passage.stamp()
        leg = passage.leg(worker, passage.headers, "context", service.settings.proxy.timeout_context)
        answer = await leg.collect(body, fresh=fresh)
        record.context_done = perf_counter()
        read = _read(passage, answer) if answer.head.status == 200 else answer
        if ids is not None and isinstance(read, ContextAnswer):
            read.use_ids(ids, chat=passage.request.chat)
        reservation.report(
            outcome_of_status(answer.head.status),
            retry_after=retry_after_seconds(answer.head.get(b"retry-after")),
        )
        return read


def _ids_for(prompt: Prompt | None, accepted: Accepted) -> bytes | None:
    """The ids for a worker, unless it is one of those that would refuse them."""
    if prompt is None or (prompt.chat and not accepted.base64_ids):
        return None
    return prompt.ids


def _read(passage: Passage, answer: Answer) -> ContextAnswer:
    """What a 200 says.

    Raises:
        BrokenAnswer: it lacks what must be in it; `null` comes from a worker that is shutting down.
    """
    if passage.worker_metrics is not None:
        passage.worker_metrics = leg_metrics(answer.head, b"ctx")
    try:
        return (read_response if passage.request.responses else read_context_answer)(answer.body)
    except WireError as error:
        passage.service.orphans.lose()
        raise BrokenAnswer(str(error)) from None
