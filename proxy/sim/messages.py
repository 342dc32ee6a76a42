"""Anthropic's Messages API, as the newest workers have it: without a hand-off."""

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from proxy.sim.answer import expected_answers
from proxy.sim.engine import Run
from proxy.sim.reply import Reply
from proxy.sim.tokens import count_ids, prompts_of

if TYPE_CHECKING:
    from proxy.sim.worker import SimWorker

MESSAGES, COUNT_TOKENS = "/v1/messages", "/v1/messages/count_tokens"
_encode = msgspec.json.encode


def chat_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The chat body with the same prompt and answer."""
    messages = list(body["messages"])
    if body.get("system"):
        messages.insert(0, {"role": "system", "content": body["system"]})
    chat: dict[str, Any] = {"model": body["model"], "messages": messages}
    if "max_tokens" in body:
        chat["max_tokens"] = body["max_tokens"]
    return chat


async def serve_messages(worker: "SimWorker", path: str, raw: bytes, reply: Reply, run: Run) -> None:
    """Answer a request to one of the two routes."""
    try:
        body = msgspec.json.decode(raw, type=dict[str, Any])
        chat = chat_body(body)
        tokens = count_ids(prompts_of(chat)[0])
        if path == COUNT_TOKENS:
            await reply.json(_encode({"input_tokens": tokens}))
            return
        (answer,) = expected_answers(chat)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        await reply.json(_encode(_error(repr(error))), 400)
        return
    message: dict[str, Any] = {
        "id": f"msg_{secrets.token_hex(8)}",
        "type": "message",
        "role": "assistant",
        "model": worker.settings.model,
        "content": [{"type": "text", "text": answer.text}],
        "stop_reason": "max_tokens" if answer.finish_reason == "length" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": tokens, "output_tokens": len(answer.token_ids)},
    }
    async with worker.engine.place(run):
        await worker.engine.prefill(run, tokens)
        if not body.get("stream"):
            await worker.engine.decode_all(run, len(answer.token_ids) - 1)
            await reply.json(_encode(message))
            return
        await reply.start_stream()
        started = {**message, "content": [], "stop_reason": None}
        await reply.event(_event("message_start", message=started))
        block = {"type": "text", "text": ""}
        await reply.event(_event("content_block_start", index=0, content_block=block))
        for position, piece in enumerate(answer.pieces):
            if position:
                await run.step()
            delta = {"type": "text_delta", "text": piece}
            await reply.event(_event("content_block_delta", index=0, delta=delta))
        await reply.event(_event("content_block_stop", index=0))
        ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        await reply.event(_event("message_delta", delta=ended, usage=message["usage"]))
        await reply.finish(_event("message_stop"))


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **fields}))


def _error(text: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
