"""The request fields that workers accept, per route and version.

Workers validate with `extra="forbid"`: one unknown top-level member fails the whole request with a 400, and the
set changes with every release. Members that belong to the conversation between proxy and workers are listed
apart (`INTERNAL`), since a client must never set them: `disaggregated_params` could point a generation worker
at any endpoint.
"""

from proxy.wire.versions import WorkerVersion

_SAMPLING = frozenset(
    {
        "best_of", "early_stopping", "frequency_penalty", "ignore_eos", "include_stop_str_in_output",
        "length_penalty", "logit_bias", "lora_request", "min_p", "min_tokens", "n", "presence_penalty",
        "prompt_ignore_length", "repetition_penalty", "response_format", "seed", "skip_special_tokens",
        "spaces_between_special_tokens", "stop", "stop_token_ids", "temperature", "thinking_token_budget",
        "top_k", "top_p", "top_p_min", "truncate_prompt_tokens", "use_beam_search", "user",
    }
)  # fmt: skip

_COMMON = _SAMPLING | {
    "add_special_tokens",
    "echo",
    "logprobs",
    "max_tokens",
    "model",
    "stream",
    "stream_options",
}

_COMPLETIONS = _COMMON | {"detokenize", "prompt", "return_context_logits", "suffix"}

_CHAT = _COMMON | {
    "add_generation_prompt", "agent_hierarchy", "cache_salt", "chat_template", "chat_template_kwargs", "documents",
    "max_completion_tokens", "media_io_kwargs", "messages", "mm_processor_kwargs", "reasoning_effort",
    "tool_choice", "tools", "top_logprobs",
}  # fmt: skip

CHAT: dict[WorkerVersion, frozenset[str]] = {
    WorkerVersion.OLD: _CHAT,
    WorkerVersion.JUL: _CHAT | {"conversation_params"},
    WorkerVersion.NEW: _CHAT | {"conversation_params", "parallel_tool_calls", "priority", "thinking"},
}

COMPLETIONS: dict[WorkerVersion, frozenset[str]] = {
    WorkerVersion.OLD: _COMPLETIONS,
    WorkerVersion.JUL: _COMPLETIONS | {"conversation_params"},
    WorkerVersion.NEW: _COMPLETIONS | {"conversation_params", "priority"},
}

INTERNAL = frozenset({"disaggregated_params", "prompt_token_ids_b64", "injected_chat_template_kwargs"})
"""Between proxy and workers only: dropped and counted, whoever sends them."""

CLIENT_TOKEN_IDS = frozenset({"prompt_token_ids", "input_ids"})
"""The prompt as token ids on the chat route: refused unless the operator trusts the clients with it."""
