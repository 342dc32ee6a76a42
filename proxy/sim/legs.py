"""The three kinds of requests: context only, generation only, and both in one worker."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from proxy.sim.answer import Answer, answers, context_answer
from proxy.sim.auth import REFUSAL, is_signed
from proxy.sim.engine import Run
from proxy.sim.faults import Fault
from proxy.sim.handover import POLL_SECONDS, ContextAddress
from proxy.sim.inference import Inference, RequestError, Usage
from proxy.sim.kv import Handoff
from proxy.sim.logprobs import first_logprobs, given_logprob, logprob_of
from proxy.sim.perf import metrics_event, metrics_headers, nemo_stamps
from proxy.sim.reply import Reply
from proxy.sim.responses import ResponseStream, response_body
from proxy.sim.shapes import Choice, complete_body, handoff_params
from proxy.sim.stream import DONE, EventStream
from proxy.sim.tokens import count_ids, digest_of

if TYPE_CHECKING:
    from proxy.sim.worker import SimWorker

GENERATION_FIRST = 1  # `schedule_style` on the wire


async def serve(
    worker: "SimWorker", inference: Inference, reply: Reply, run: Run, auth: bytes | None
) -> None:
    """Answer a validated request. Raises `RequestError` and the like before the first byte."""
    if inference.params and worker.settings.transceiver == "none":
        raise RequestError("disaggregated_params need cache_transceiver_config to be set on this worker")
    _check_sequence(worker, inference)
    if inference.leg == "context":
        await _serve_context(worker, inference, reply, run)
    elif inference.leg == "generation":
        if not is_signed(worker.settings.auth_key, inference.params, auth):
            raise RequestError(REFUSAL)
        await _serve_generation(worker, inference, reply, run)
    else:
        await _serve_aggregated(worker, inference, reply, run)


def _check_sequence(worker: "SimWorker", inference: Inference) -> None:
    limit = worker.settings.max_sequence
    budget = inference.wishes.budget or 1
    longest = max(count_ids(prompt) for prompt in inference.prompts)
    if limit and longest + budget > limit:
        raise RequestError(
            f"The sum of prompt length ({longest}) and max_tokens ({budget}) should not exceed "
            f"max_seq_len ({limit}): the prompt exceeds the context length"
        )


async def _serve_context(worker: "SimWorker", inference: Inference, reply: Reply, run: Run) -> None:
    request_id = inference.params.get("disagg_request_id")
    if type(request_id) is not int or request_id <= 0:
        raise RequestError("context_only requests need an integer disagg_request_id")
    worker.kv.claim(request_id)
    prompt = inference.prompts[0]
    ended = reply.fault("finish")
    async with worker.engine.place(run):
        await worker.engine.prefill(run, count_ids(prompt))
        usage = Usage(count_ids(prompt), worker.cached_tokens(inference))
        made = answers(prompt, inference.wishes)
        inference.first_token = worker.now()
        first = made[0]
        by_itself = len(first.token_ids) == 1 and first.finish_reason == "stop"
        if ended is not None or inference.wishes.context_stop or by_itself:
            without_ids = ended.handoff == "null_ids" if ended is not None else True
            reason = "stop" if ended is None else ended.finish_reason
            shown = [answer if by_itself else context_answer(answer) for answer in made]
            params = _context_params(worker, inference, None if without_ids else request_id, first)
        else:
            first_token = first.token_ids[0]
            handoff = worker.kv.hold(
                worker.name, request_id, digest_of(prompt), count_ids(prompt), (first_token,)
            )
            if inference.params.get("schedule_style") == GENERATION_FIRST:
                await _wait_until_taken(worker, handoff, run)
            reason = "length" if len(first.token_ids) == 1 else "not_finished"
            shown = [context_answer(answer) for answer in made]
            params = _context_params(worker, inference, request_id, first)
    choices = _context_choices(shown, reason, params, reply.fault("missing_handoff"))
    ids = prompt if not inference.chat or worker.profile.chat_context_ids else None
    if reply.fault("missing_ids"):
        ids = None
    await _send_complete(worker, inference, reply, choices, usage, ids)


async def _wait_until_taken(worker: "SimWorker", handoff: Handoff, run: Run) -> None:
    # Generation first: the context worker waits for the generation worker's receive session.
    while not handoff.taken:
        if not worker.kv.peek(worker.name, handoff.request_id) and not handoff.taken:
            raise RequestError(f"no generation worker took the KV cache of {handoff.request_id}")
        await run.sleep(POLL_SECONDS)


def _context_params(
    worker: "SimWorker", inference: Inference, request_id: int | None, first: Answer
) -> dict[str, Any]:
    asked = inference.params
    with_state = worker.settings.transceiver in ("full", "cpp")
    with_endpoint = worker.settings.transceiver in ("full", "python")
    wants_logprobs = inference.logprobs is not None
    return handoff_params(
        worker.profile,
        {
            "request_type": "context_only",
            "first_gen_tokens": [first.token_ids[0]],
            "first_gen_log_probs": first_logprobs(first.token_ids[0]) if wants_logprobs else None,
            "ctx_request_id": request_id,
            "disagg_request_id": request_id,
            "encoded_opaque_state": worker.context_address.as_state() if with_state else None,
            "ctx_info_endpoint": worker.context_address.as_endpoint() if with_endpoint else None,
            "ctx_dp_rank": 0 if with_endpoint else None,
            "schedule_style": asked.get("schedule_style"),
            "conversation_id": asked.get("conversation_id"),
            "return_prompt_token_ids_b64": asked.get("return_prompt_token_ids_b64"),
            "resolved_thinking": inference.wishes.thinking if inference.chat else None,
        },
    )


def _context_choices(
    shown: Sequence[Answer], reason: str | None, params: dict[str, Any], missing: Fault | None
) -> list[Choice]:
    handoff: dict[str, Any] | None = params
    absent = False
    if missing is not None:
        absent = missing.handoff in (None, "absent")
        handoff = None
        if missing.handoff == "null_ids":
            handoff = {**params, "ctx_request_id": None, "disagg_request_id": None}
    return [
        Choice(answer, reason, handoff, without_params=absent, first_logprob=logprob_of(answer.token_ids[0]))
        for answer in shown
    ]


async def _serve_generation(worker: "SimWorker", inference: Inference, reply: Reply, run: Run) -> None:
    params = inference.params
    generation_first = params.get("schedule_style") == GENERATION_FIRST
    if generation_first and not worker.settings.generation_first:
        raise RequestError("generation_first is not supported by this worker's cache transceiver")
    request_id = params.get("disagg_request_id")
    if request_id is None:
        request_id = params.get("ctx_request_id")
    if type(request_id) is not int:
        raise RequestError("generation_only requests need disagg_request_id or ctx_request_id")
    first_tokens = params.get("first_gen_tokens")
    if not first_tokens and not generation_first:
        raise RequestError("generation_only requests need first_gen_tokens")
    context = ContextAddress.from_params(params)
    prompt = inference.prompts[0]
    async with worker.engine.place(run):
        started = worker.now()
        wait_seconds = worker.kv.seconds if generation_first else 0.0
        handoff = await worker.reach.take(context, request_id, wait_seconds=wait_seconds, sleep=run.sleep)
        inference.kv_transfer_seconds = worker.now() - started
        if handoff.prompt_digest != digest_of(prompt):
            raise RequestError(
                f"prompt token ids ({count_ids(prompt)}) differ from those of the context worker "
                f"({handoff.prompt_tokens})"
            )
        if first_tokens and tuple(first_tokens) != handoff.first_tokens:
            raise RequestError("first_gen_tokens differ from what the context worker sampled")
        thinking = params.get("resolved_thinking")
        wishes = inference.wishes if thinking is None else replace(inference.wishes, thinking=bool(thinking))
        given = params.get("ctx_usage")
        tokens = count_ids(prompt)
        usage = Usage(tokens, tokens) if given is None else Usage.from_params(given)
        made = answers(prompt, wishes)
        await _send_answers(worker, inference, reply, run, made, usage, first_logprob=_first(params, made))


def _first(params: dict[str, Any], made: Sequence[Answer]) -> float:
    if params.get("schedule_style") == GENERATION_FIRST:
        return logprob_of(made[0].token_ids[0])
    return given_logprob(params.get("first_gen_log_probs"))


async def _serve_aggregated(worker: "SimWorker", inference: Inference, reply: Reply, run: Run) -> None:
    async with worker.engine.place(run):
        await worker.engine.prefill(run, inference.prompt_tokens)
        usage = Usage(inference.prompt_tokens, worker.cached_tokens(inference))
        made = [answer for prompt in inference.prompts for answer in answers(prompt, inference.wishes)]
        if inference.wishes.context_stop:
            made = [context_answer(answer) for answer in made]
        first = logprob_of(made[0].token_ids[0])
        await _send_answers(worker, inference, reply, run, made, usage, first_logprob=first)


async def _send_answers(
    worker: "SimWorker",
    inference: Inference,
    reply: Reply,
    run: Run,
    made: Sequence[Answer],
    usage: Usage,
    *,
    first_logprob: float,
) -> None:
    inference.first_token = worker.now()
    # Generation workers echo the hand-off in their answers.
    params = handoff_params(worker.profile, inference.params) if inference.params else None
    if inference.stream and not reply.fault("not_sse"):
        if inference.responses:
            response = ResponseStream(inference, made[0], worker.settings.model, usage, params)
            await _send_stream(worker, inference, reply, run, made, response)
            return
        stream = EventStream(
            inference,
            made,
            worker.settings.model,
            usage,
            engine_id=worker.next_engine_id(),
            first_logprob=first_logprob,
        )
        await _send_stream(worker, inference, reply, run, made, stream)
        return
    await worker.engine.decode_all(run, max(len(answer.token_ids) for answer in made) - 1)
    choices = [Choice(answer, answer.finish_reason, params, first_logprob=first_logprob) for answer in made]
    await _send_complete(worker, inference, reply, choices, usage, None)


async def _send_stream(
    worker: "SimWorker",
    inference: Inference,
    reply: Reply,
    run: Run,
    made: Sequence[Answer],
    stream: EventStream | ResponseStream,
) -> None:
    await reply.start_stream()
    for frame in stream.opening():
        await reply.event(frame)
    for position in range(max(len(answer.token_ids) for answer in made)):
        if position:
            await run.step()
        for index, answer in enumerate(made):
            if position < len(answer.token_ids):
                await reply.event(stream.token(index, position))
    if inference.include_usage:
        await reply.event(stream.usage_event())
    worker.note_metrics(inference)
    if inference.wants_metrics and worker.has_metrics:
        await reply.event(DONE)
        await reply.finish(metrics_event(inference, worker.clock_offset))
    else:
        await reply.finish(stream.closing())


async def _send_complete(
    worker: "SimWorker",
    inference: Inference,
    reply: Reply,
    choices: Sequence[Choice],
    usage: Usage,
    prompt_ids: bytes | None,
) -> None:
    shows_stamps = worker.settings.nemo_stamps and inference.leg == "context"
    more = nemo_stamps(inference) if shows_stamps else {}
    if inference.responses:
        body = response_body(inference, worker.settings.model, choices[0], usage, prompt_ids)
    else:
        body = complete_body(inference, worker.settings.model, choices, usage, prompt_ids, more)
    worker.note_metrics(inference)
    headers = (
        metrics_headers(inference, worker.clock_offset)
        if inference.wants_metrics and worker.has_metrics
        else []
    )
    await reply.json(body, headers=headers)
