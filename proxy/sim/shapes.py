"""Complete (not streamed) answers, with all keys, nulls included, in the order in which workers dump them."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.sim.answer import Answer
from proxy.sim.inference import Inference, Usage
from proxy.sim.logprobs import chat_logprobs, completion_logprobs
from proxy.sim.profiles import Profile
from proxy.sim.tokens import encode_ids, unpack_ids

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer with what the leg adds to it."""

    answer: Answer
    finish_reason: str | None
    params: Mapping[str, Any] | None = None  # `disaggregated_params`; None shows null
    without_params: bool = False  # leave the key out (a fault)
    first_logprob: float = 0.0


def handoff_params(profile: Profile, values: Mapping[str, Any]) -> dict[str, Any]:
    """``disaggregated_params`` of an answer: every key that the version knows."""
    params = {key: values.get(key) for key in profile.disaggregated_keys}
    if "return_prompt_token_ids_b64" in params:
        params["return_prompt_token_ids_b64"] = bool(values.get("return_prompt_token_ids_b64"))
    return params


def complete_body(
    inference: Inference,
    model: str,
    choices: Sequence[Choice],
    usage: Usage,
    prompt_ids: bytes | None,
    more: Mapping[str, Any],
) -> bytes:
    """The JSON body of an answer; ``prompt_ids`` (int32 bytes) are shown by context legs only."""
    completion_tokens = sum(len(choice.answer.token_ids) for choice in choices)
    chat = inference.chat
    as_base64 = chat and bool(inference.params.get("return_prompt_token_ids_b64"))
    body: dict[str, Any] = {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(16)}",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            _chat_choice(inference, index, choice) if chat else _completion_choice(inference, index, choice)
            for index, choice in enumerate(choices)
        ],
        "usage": usage.raw(completion_tokens),
        "prompt_token_ids": unpack_ids(prompt_ids) if prompt_ids is not None and not as_base64 else None,
    }
    if chat:
        body["prompt_token_ids_b64"] = (
            encode_ids(prompt_ids) if prompt_ids is not None and as_base64 else None
        )
    return _encode({**body, **more})


def _chat_choice(inference: Inference, index: int, choice: Choice) -> dict[str, Any]:
    answer = choice.answer
    call = answer.tool_call
    logprobs = None
    if inference.logprobs is not None:
        positions = range(len(answer.token_ids))
        logprobs = chat_logprobs(
            answer, positions, inference.logprobs, choice.first_logprob, named=inference.names_ids
        )
    shown: dict[str, Any] = {
        "index": index,
        "message": {
            "role": "assistant",
            "content": echoed_text(inference) + answer.text,
            "reasoning_content": answer.reasoning,
            "reasoning": None,
            "tool_calls": []
            if call is None
            else [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
            ],
        },
        "logprobs": logprobs,
        "finish_reason": choice.finish_reason,
        "stop_reason": answer.stop_reason,
        "mm_embedding_handle": None,
        "disaggregated_params": choice.params,
        "avg_decoded_tokens_per_iter": None,
    }
    if inference.shows_ids:
        shown["token_ids"] = list(answer.token_ids)
    if choice.without_params:
        del shown["disaggregated_params"]
    return shown


def _completion_choice(inference: Inference, index: int, choice: Choice) -> dict[str, Any]:
    answer = choice.answer
    plain_text = inference.body.get("detokenize", True)
    logprobs = None
    if inference.logprobs is not None:
        positions = range(len(answer.token_ids))
        logprobs = completion_logprobs(answer, positions, inference.logprobs, choice.first_logprob)
    shown: dict[str, Any] = {
        "index": index,
        "text": answer.text if plain_text else "",
        "token_ids": None if plain_text and not inference.shows_ids else list(answer.token_ids),
        "logprobs": logprobs,
        "context_logits": None,
        "finish_reason": choice.finish_reason,
        "stop_reason": answer.stop_reason,
        "disaggregated_params": choice.params,
        "avg_decoded_tokens_per_iter": None,
    }
    if choice.without_params:
        del shown["disaggregated_params"]
    return shown


def echoed_text(inference: Inference) -> str:
    """With ``echo`` on chat: the last message's text, when its role is the answer's."""
    body = inference.body
    if not inference.chat or not body.get("echo") or not body["messages"]:
        return ""
    last = body["messages"][-1]
    role = "assistant" if body.get("add_generation_prompt", True) else last["role"]
    content = last.get("content")
    return content if last["role"] == role and isinstance(content, str) else ""
