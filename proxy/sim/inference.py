"""One request to a completions route, as the legs see it after validation."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proxy.sim.answer import Wishes, wishes_of
from proxy.sim.faults import Leg
from proxy.sim.settings import PromptIds
from proxy.sim.tokens import PromptError, brings_ids, pack_ids, prompts_of

LEGS: dict[str, Leg] = {
    "context_only": "context",
    "generation_only": "generation",
    "context_and_generation": "aggregated",
}

MOST_CHOICES = 128


class RequestError(ValueError):
    """The handler refuses the request: 400 with the error envelope."""


def leg_of(body: Any) -> Leg:
    """Which leg a parsed body asks for, valid or not (unknown request types count as aggregated)."""
    params = body.get("disaggregated_params") if isinstance(body, dict) else None
    kind = params.get("request_type") if isinstance(params, dict) else None
    return LEGS.get(kind.lower(), "aggregated") if isinstance(kind, str) else "aggregated"


@dataclass(slots=True)
class Inference:
    """A validated request."""

    body: dict[str, Any]
    chat: bool
    leg: Leg
    params: dict[str, Any]
    prompts: list[bytes]  # int32 bytes each
    wishes: Wishes
    stream: bool
    include_usage: bool
    continuous_usage: bool
    logprobs: int | None  # None: off; else how many alternatives are shown
    wants_metrics: bool
    shows_ids: bool = False  # `return_token_ids`
    names_ids: bool = False  # `return_tokens_as_token_ids`
    responses: bool = False  # the Responses API, read as chat
    arrival: float = field(default_factory=time.monotonic)
    first_token: float = 0.0
    kv_transfer_seconds: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(len(prompt) for prompt in self.prompts) // 4


def read_inference(
    body: dict[str, Any],
    *,
    chat: bool,
    wants_metrics: bool,
    prompt_ids: PromptIds | None = None,
    tells_ids: bool = False,
) -> Inference:
    """Read what the legs need. Raises `RequestError` or `proxy.sim.tokens.PromptError`."""
    params = body.get("disaggregated_params") or {}
    if params and params["request_type"].lower() not in LEGS:
        raise RequestError(f"Unknown request type: {params['request_type']}")
    for name, least in (("n", 1), ("max_tokens", 1), ("max_completion_tokens", 1)):
        value = body.get(name)
        if value is not None and value < least:
            raise RequestError(f"{name} must be at least {least}, got {value}")
    if body.get("n", 1) > MOST_CHOICES:
        raise RequestError(f"n must be at most {MOST_CHOICES}")
    try:
        if prompt_ids is None or brings_ids(body):
            prompts = prompts_of(body)
        else:
            prompts = [pack_ids(prompt_ids(body))]
        wishes = wishes_of(body)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        # Parts that no model checks: tool calls of messages, JSON schemas.
        raise RequestError(f"the request cannot be read: {error!r}") from error
    options = body.get("stream_options")
    stream = bool(body.get("stream"))
    inference = Inference(
        body=body,
        chat=chat,
        leg=leg_of(body),
        params=params,
        prompts=prompts,
        wishes=wishes,
        stream=stream,
        # An empty `stream_options` means usage too: true is the field's default.
        include_usage=options is not None and bool(options.get("include_usage", True)),
        continuous_usage=bool(options and options.get("continuous_usage_stats")),
        logprobs=_logprobs_of(body, chat),
        wants_metrics=wants_metrics,
        shows_ids=tells_ids and bool(body.get("return_token_ids")),
        names_ids=tells_ids and bool(body.get("return_tokens_as_token_ids")),
    )
    if inference.leg != "aggregated" and len(inference.prompts) != 1:
        raise RequestError("Disaggregated requests take a single prompt")
    if chat and not body["messages"] and body.get("prompt_token_ids") is None:
        raise PromptError("messages must not be empty")
    return inference


def _logprobs_of(body: Mapping[str, Any], chat: bool) -> int | None:
    if chat:
        return int(body.get("top_logprobs") or 0) if body.get("logprobs") else None
    return int(body["logprobs"]) if body.get("logprobs") else None  # 0 counts as off here


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of an answer."""

    prompt_tokens: int
    cached_tokens: int

    @classmethod
    def from_params(cls, usage: Mapping[str, Any]) -> "Usage":
        """From ``ctx_usage``, the context answer's ``usage``."""
        details = usage.get("prompt_tokens_details") or {}
        return cls(int(usage["prompt_tokens"]), int(details.get("cached_tokens", 0)))

    def encode(self, completion_tokens: int) -> bytes:
        """As JSON bytes."""
        return (
            b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,'
            b'"prompt_tokens_details":{"cached_tokens":%d}}'
            % (
                self.prompt_tokens,
                self.prompt_tokens + completion_tokens,
                completion_tokens,
                self.cached_tokens,
            )
        )

    def raw(self, completion_tokens: int) -> msgspec.Raw:
        """As a member of a JSON body."""
        return msgspec.Raw(self.encode(completion_tokens))
