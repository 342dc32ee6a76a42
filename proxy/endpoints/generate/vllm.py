"""/inference/v1/generate as vLLM has it, which SkyRL and prime-rl ask for."""

from __future__ import annotations

from typing import Any

from proxy.endpoints.generate.generated import Generated
from proxy.endpoints.generate.prompt import (
    count_ids,
    refuse_unless_neutral,
    require_ids,
    split_request,
    take_flag,
    take_id,
)
from proxy.endpoints.generate.sampling import VLLM, read_sampling
from proxy.endpoints.generate.shape import Asked
from proxy.errors import InvalidRequest
from proxy.wire.members import JSONBytes, equals

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),  # as members of completions they would be taken for it
    "best_of": (1,),
    "stream": (False,),
    "stream_options": (),
    "features": ([], {}),  # of multimodal prompts
    "cache_salt": (),
    "priority": (0,),
}
"""What cannot be done on this route, with the values that do not ask for it."""


class VLLMShape:
    """See `proxy.endpoints.generate.shape.Shape`."""

    def read(self, body: bytes) -> Asked:
        """See `Shape`."""
        members = split_request(body)
        request_id = take_id(members, "request_id")
        if take_flag(members, "stream"):
            raise InvalidRequest("stream is not supported here", code="unsupported_value", param="stream")
        refuse_unless_neutral(members, NEUTRAL)
        ids = members.pop("token_ids", None)
        if ids is None:
            message = "token_ids is required"
            raise InvalidRequest(message, code="missing_required_parameter", param="token_ids")
        sampling = read_sampling(members.pop("sampling_params", None), VLLM)
        logprobs = sampling.pop("logprobs", None)
        if logprobs is not None and not (equals(logprobs, b"0") or equals(logprobs, b"1")):
            message = "logprobs must be 0 or 1: the workers name alternatives by their text, not by their ids"
            raise InvalidRequest(message, code="unsupported_value", param="sampling_params.logprobs")
        made: dict[str, JSONBytes] = {**members, "prompt": require_ids("token_ids", ids), **sampling}
        return Asked(made, request_id=request_id, logprobs=logprobs is not None, prompt_tokens=count_ids(ids))

    def answer(self, asked: Asked, generated: Generated, request_id: str, seconds: float) -> Any:
        """See `Shape`."""
        return _shown(asked, generated, request_id, generated.finish_reason)

    def aborted(self, asked: Asked, generated: Generated, request_id: str, message: str) -> Any:
        """See `Shape`."""
        return _shown(asked, generated, request_id, "abort")


def _shown(asked: Asked, generated: Generated, request_id: str, reason: str | None) -> dict[str, Any]:
    choice = {
        "index": 0,
        "logprobs": {"content": _content(generated)} if asked.logprobs else None,
        "finish_reason": reason,
        "token_ids": generated.token_ids,
    }
    return {
        "request_id": request_id,
        "choices": [choice],
        "prompt_logprobs": None,
        "kv_transfer_params": None,
    }


def _content(generated: Generated) -> list[dict[str, Any]]:
    return [
        {
            "token": f"token_id:{token}",
            "logprob": generated.logprob(position),
            "bytes": None,
            "top_logprobs": [],
        }
        for position, token in enumerate(generated.token_ids)
    ]
