"""Is a leg what a worker must get? The full check runs on the first request of each connection only.

A proxy that dropped or changed the hand-off would look fast; a full check of each request would make the
workers the slowest part of the run. After the first one, the size of the body is compared.
"""

import base64
import json
from array import array

from bench.cases import Case
from bench.payloads import MODEL, client_body, prompt_ids


class WrongLegError(Exception):
    """A leg that a real worker could not have served."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise WrongLegError(message)


def _same_prompt(case: Case, body: dict[str, object], whole: bool) -> None:
    _require(body.get("model") == MODEL, "model changed")
    expected = json.loads(client_body(case))["messages"]
    messages = body.get("messages")
    _require(messages == expected or (not whole and messages == expected[-1:]), "messages changed")
    # A gateway that reads it as a 32-bit number writes 0.699999988.
    _require(abs(float(body.get("temperature", 0)) - 0.7) < 1e-6, "temperature lost")


def context_leg(case: Case, body: bytes, dialect: str) -> None:
    """Raise WrongLegError unless `body` is a context leg of the case in this dialect."""
    request = json.loads(body)
    _same_prompt(case, request, whole=True)
    if dialect == "trtllm":
        params = request.get("disaggregated_params") or {}
        _require(params.get("request_type") == "context_only", "not context_only")
        _require(isinstance(params.get("disagg_request_id"), int), "no disagg_request_id")
        _require(not request.get("stream"), "context leg is streamed")
    elif dialect == "vllm":
        _require("kv_transfer_params" in request, "no kv_transfer_params")
    elif dialect == "sglang":
        _require("bootstrap_room" in request, f"no bootstrap_room: {list(request)}")


def generation_leg(case: Case, body: bytes, dialect: str) -> None:
    """Raise WrongLegError unless `body` is a generation leg of the case in this dialect."""
    request = json.loads(body)
    _same_prompt(case, request, whole=dialect != "trtllm")
    _require(bool(request.get("stream")) == case.streamed, "stream flag changed")
    if dialect == "trtllm":
        params = request.get("disaggregated_params") or {}
        _require(params.get("request_type") == "generation_only", "not generation_only")
        _require(isinstance(params.get("disagg_request_id"), int), "no disagg_request_id")
        _require(params.get("first_gen_tokens") == [727], "first_gen_tokens lost")
        _require(bool(params.get("encoded_opaque_state")), "encoded_opaque_state lost")
        _require(_ids(request) == prompt_ids(case.token_ids), "prompt ids lost")
    elif dialect == "vllm":
        params = request.get("kv_transfer_params") or {}
        _require(bool(params.get("remote_block_ids")), "kv_transfer_params lost")
    elif dialect == "sglang":
        _require("bootstrap_room" in request, f"no bootstrap_room: {list(request)}")


def _ids(request: dict[str, object]) -> tuple[int, ...]:
    encoded = request.get("prompt_token_ids_b64")
    if isinstance(encoded, str):
        return tuple(array("i", base64.b64decode(encoded, validate=True)))
    return tuple(request.get("prompt_token_ids") or ())


def least_generation_bytes(case: Case, dialect: str) -> int:
    """No correct generation leg is smaller: ids as base64 plus, unless history is stripped, the body."""
    if dialect == "trtllm":
        return case.token_ids * 16 // 3
    return len(client_body(case)) * 9 // 10
