"""/generate as SGLang's native API has it."""

from __future__ import annotations

from typing import Any

from proxy.endpoints.generate.generated import Generated
from proxy.endpoints.generate.prompt import (
    count_ids,
    refuse_unless_neutral,
    require_ids,
    require_text,
    split_request,
    take_flag,
    take_id,
)
from proxy.endpoints.generate.sampling import SGLANG, read_sampling
from proxy.endpoints.generate.shape import Asked
from proxy.errors import InvalidRequest
from proxy.wire.members import JSONBytes, equals

DEFAULT_MAX_NEW_TOKENS = b"128"

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),  # as members of completions they would be taken for it
    "best_of": (1,),
    "logprob_start_len": (-1,),  # log-probabilities of the prompt
    "top_logprobs_num": (0,),  # the workers name alternatives by their text, not by their ids
    "token_ids_logprob": ([],),
    "image_data": ([],),
    "video_data": ([],),
    "audio_data": ([],),
    "input_embeds": ([],),
    "modalities": ([],),
    "lora_path": (),
    "lora_id": (),
    "session_params": ({},),
    "custom_logit_processor": ("",),
    "return_hidden_states": (False,),
    "return_routed_experts": (False,),
    "return_bytes": (False,),
    "require_reasoning": (False,),
}
"""What no worker can do, with the values that do not ask for it."""


class SGLangShape:
    """See `proxy.endpoints.generate.shape.Shape`.

    Workers give either text or ids. A prompt of ids, or a request for log-probabilities, is answered with ids, any
    other one with text.
    """

    def read(self, body: bytes) -> Asked:
        """See `Shape`."""
        members = split_request(body)
        request_id = take_id(members, "rid")
        stream = take_flag(members, "stream")
        logprobs = take_flag(members, "return_logprob")
        refuse_unless_neutral(members, NEUTRAL)
        text, ids = members.pop("text", None), members.pop("input_ids", None)
        if ids is not None and text is None:
            prompt = require_ids("input_ids", ids)
        elif text is not None and ids is None:
            prompt = require_text("text", text)
        else:
            message = "one of text and input_ids is required, and only one"
            raise InvalidRequest(message, code="missing_required_parameter", param="text")
        sampling = read_sampling(members.pop("sampling_params", None), SGLANG)
        made: dict[str, JSONBytes] = {
            **members,
            "prompt": prompt,
            "max_tokens": DEFAULT_MAX_NEW_TOKENS,
            **sampling,
        }
        keep = sampling.get("skip_special_tokens")
        return Asked(
            made,
            request_id=request_id,
            stream=stream,
            logprobs=logprobs,
            ids=logprobs or ids is not None,
            prompt_tokens=count_ids(ids) if ids is not None else None,
            keep_special=keep is not None and equals(keep, b"false"),
        )

    def answer(self, asked: Asked, generated: Generated, request_id: str, seconds: float) -> Any:
        """See `Shape`."""
        return _shown(asked, generated, request_id, _finish_reason(generated), seconds)

    def aborted(self, asked: Asked, generated: Generated, request_id: str, message: str) -> Any:
        """See `Shape`."""
        return _shown(asked, generated, request_id, {"type": "abort", "message": message}, 0.0)


def _shown(
    asked: Asked, generated: Generated, request_id: str, reason: Any, seconds: float
) -> dict[str, Any]:
    usage = generated.usage
    prompt_tokens = asked.prompt_tokens if usage is None else usage.prompt_tokens
    meta: dict[str, Any] = {
        "id": request_id,
        "finish_reason": reason,
        "prompt_tokens": prompt_tokens or 0,
        "completion_tokens": generated.completion_tokens,
        "cached_tokens": usage.cached_tokens if usage is not None else 0,
        "e2e_latency": round(seconds, 6),
    }
    if asked.logprobs:
        meta["output_token_logprobs"] = [
            (generated.logprob(position), token, None) for position, token in enumerate(generated.token_ids)
        ]
        meta["output_token_logprobs_length"] = len(generated.token_ids)
    return {"text": generated.text, "output_ids": generated.token_ids, "meta_info": meta}


def _finish_reason(generated: Generated) -> dict[str, Any] | None:
    reason = generated.finish_reason
    if reason is None:
        return None
    if reason == "length":
        return {"type": "length", "length": generated.completion_tokens}
    if reason == "stop":
        stopped = generated.stop_reason
        return {"type": "stop", **({} if stopped is None else {"matched": stopped})}
    return {"type": "abort", "message": f"the worker ended the request: {reason}"}
