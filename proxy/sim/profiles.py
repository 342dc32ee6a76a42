"""Which request fields each TensorRT-LLM version accepts, as literal tables.

A row is ``name: (type, versions)``. The type names a check of `proxy.sim.validation`; a trailing ``?``
means that null is accepted too. The three versions: ``old`` (1.2 and early 1.3 release candidates),
``jul`` (1.3.0rc24) and ``new`` (later `main`). Sources: TensorRT-LLM pull requests 15698 (base64 token
ids), 16126 and 16873 (msgpack bodies), 19459 (parallel_tool_calls).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

Version = Literal["old", "jul", "new"]
FieldTable = dict[str, tuple[str, str]]

VERSIONS: tuple[Version, ...] = get_args(Version)
ALL = "old jul new"
SINCE_JUL = "jul new"
NEW_ONLY = "new"
BEFORE_NEW = "old jul"

COMPLETION_FIELDS: FieldTable = {
    "model": ("string", ALL),
    "prompt": ("prompt", ALL),
    "best_of": ("integer?", ALL),
    "echo": ("boolean?", ALL),
    "frequency_penalty": ("number?", ALL),
    "logit_bias": ("logit_bias?", ALL),
    "logprobs": ("integer?", ALL),
    "max_tokens": ("integer?", ALL),
    "n": ("integer", ALL),
    "presence_penalty": ("number?", ALL),
    "seed": ("integer?", ALL),
    "stop": ("string_or_strings?", ALL),
    "stream": ("boolean?", ALL),
    "stream_options": ("StreamOptions?", ALL),
    "suffix": ("string?", ALL),
    "temperature": ("number?", ALL),
    "top_p": ("number?", ALL),
    "user": ("string?", ALL),
    "lora_request": ("object?", ALL),
    "prompt_ignore_length": ("integer?", ALL),
    "use_beam_search": ("boolean", ALL),
    "top_k": ("integer", ALL),
    "top_p_min": ("number", ALL),
    "min_p": ("number", ALL),
    "repetition_penalty": ("number", ALL),
    "length_penalty": ("number?", ALL),
    "early_stopping": ("early_stopping?", ALL),
    "stop_token_ids": ("integers?", ALL),
    "include_stop_str_in_output": ("boolean", ALL),
    "ignore_eos": ("boolean", ALL),
    "min_tokens": ("integer", ALL),
    "skip_special_tokens": ("boolean", ALL),
    "spaces_between_special_tokens": ("boolean", ALL),
    "truncate_prompt_tokens": ("positive_integer?", ALL),
    "return_context_logits": ("boolean", ALL),
    "detokenize": ("boolean", ALL),
    "thinking_token_budget": ("integer?", ALL),
    "add_special_tokens": ("boolean", ALL),
    "response_format": ("ResponseFormat?", ALL),
    "disaggregated_params": ("DisaggregatedParams?", ALL),
    "priority": ("unit_number?", NEW_ONLY),
    "conversation_params": ("ConversationParams?", SINCE_JUL),
}

CHAT_FIELDS: FieldTable = {
    "messages": ("messages", ALL),
    "prompt_token_ids": ("integers?", ALL),
    "prompt_token_ids_b64": ("string?", SINCE_JUL),
    "model": ("string", ALL),
    "frequency_penalty": ("number?", ALL),
    "logit_bias": ("logit_bias?", ALL),
    "logprobs": ("boolean?", ALL),
    "top_logprobs": ("integer?", ALL),
    # One field with two names: `max_tokens` is the alias, and the only one that OpenAPI shows.
    "max_completion_tokens": ("integer?", ALL),
    "max_tokens": ("integer?", ALL),
    "n": ("integer", ALL),
    "presence_penalty": ("number?", ALL),
    "response_format": ("ResponseFormat?", ALL),
    "seed": ("integer?", ALL),
    "stop": ("string_or_strings?", ALL),
    "stream": ("boolean?", ALL),
    "stream_options": ("StreamOptions?", ALL),
    "temperature": ("number?", ALL),
    "top_p": ("number?", ALL),
    "tools": ("tools?", ALL),
    "tool_choice": ("tool_choice?", ALL),
    "parallel_tool_calls": ("boolean?", NEW_ONLY),
    "user": ("string?", ALL),
    "reasoning_effort": ("reasoning_effort?", ALL),
    "thinking": ("ThinkingParam?", NEW_ONLY),
    "thinking_token_budget": ("integer?", ALL),
    "prompt_ignore_length": ("integer?", ALL),
    "best_of": ("integer?", ALL),
    "use_beam_search": ("boolean", ALL),
    "top_k": ("integer", ALL),
    "top_p_min": ("number", ALL),
    "min_p": ("number", ALL),
    "repetition_penalty": ("number", ALL),
    "length_penalty": ("number?", ALL),
    "early_stopping": ("early_stopping?", ALL),
    "stop_token_ids": ("integers?", ALL),
    "include_stop_str_in_output": ("boolean", ALL),
    "ignore_eos": ("boolean", ALL),
    "min_tokens": ("integer", ALL),
    "skip_special_tokens": ("boolean", ALL),
    "spaces_between_special_tokens": ("boolean", ALL),
    "truncate_prompt_tokens": ("positive_integer?", ALL),
    "lora_request": ("object?", ALL),
    "echo": ("boolean", ALL),
    "add_generation_prompt": ("boolean", ALL),
    "add_special_tokens": ("boolean", ALL),
    "documents": ("documents?", ALL),
    "chat_template": ("string?", ALL),
    "chat_template_kwargs": ("object?", ALL),
    "injected_chat_template_kwargs": ("strings?", NEW_ONLY),
    "media_io_kwargs": ("object?", ALL),
    "disaggregated_params": ("DisaggregatedParams?", ALL),
    "conversation_params": ("ConversationParams?", SINCE_JUL),
    "cache_salt": ("filled_string?", ALL),
    "priority": ("unit_number?", NEW_ONLY),
    "agent_hierarchy": ("list_or_object?", ALL),
    "mm_processor_kwargs": ("object?", ALL),
}

DISAGGREGATED_FIELDS: FieldTable = {
    "request_type": ("string", ALL),
    "first_gen_tokens": ("integers?", ALL),
    "first_gen_log_probs": ("list?", ALL),
    "first_gen_logits": ("list?", ALL),
    "ctx_request_id": ("integer?", ALL),
    "encoded_opaque_state": ("string?", ALL),
    "draft_tokens": ("integers?", ALL),
    "disagg_request_id": ("integer?", ALL),
    "ctx_dp_rank": ("integer?", ALL),
    "ctx_info_endpoint": ("string?", ALL),
    "schedule_style": ("schedule_style?", SINCE_JUL),
    "ctx_usage": ("UsageInfo?", SINCE_JUL),
    "conversation_id": ("string?", BEFORE_NEW),
    "return_prompt_token_ids_b64": ("boolean", SINCE_JUL),
    "resolved_thinking": ("boolean?", NEW_ONLY),
}

# The nested models; each of them forbids unknown keys as the top level does.
NESTED_FIELDS: dict[str, FieldTable] = {
    "StreamOptions": {
        "include_usage": ("boolean?", ALL),
        "continuous_usage_stats": ("boolean?", ALL),
    },
    "ResponseFormat": {
        "type": ("response_format_type", ALL),
        "schema": ("object?", ALL),
        "json_schema": ("object?", ALL),
        "regex": ("string?", ALL),
        "ebnf": ("string?", ALL),
        "format": ("object?", ALL),
    },
    "ChatCompletionToolsParam": {
        "type": ("function_type", ALL),
        "function": ("FunctionDefinition", ALL),
    },
    "FunctionDefinition": {
        "name": ("string", ALL),
        "description": ("string?", ALL),
        "parameters": ("object?", ALL),
        "strict": ("boolean?", SINCE_JUL),
    },
    "ChatCompletionNamedToolChoiceParam": {
        "type": ("function_type", ALL),
        "function": ("ChatCompletionNamedFunction", ALL),
    },
    "ChatCompletionNamedFunction": {"name": ("string", ALL)},
    "ConversationParams": {"conversation_id": ("conversation_id", SINCE_JUL)},
    "ThinkingParam": {
        "type": ("thinking_type", NEW_ONLY),
        "keep": ("thinking_keep?", NEW_ONLY),
        "effort": ("thinking_effort?", NEW_ONLY),
    },
    "UsageInfo": {
        "prompt_tokens": ("integer", ALL),
        "total_tokens": ("integer", ALL),
        "completion_tokens": ("integer?", ALL),
        "prompt_tokens_details": ("PromptTokensDetails?", ALL),
    },
    "PromptTokensDetails": {"cached_tokens": ("integer", ALL)},
    "DisaggregatedParams": DISAGGREGATED_FIELDS,
}

REQUIRED: dict[str, frozenset[str]] = {
    "ChatCompletionRequest": frozenset({"messages", "model"}),
    "CompletionRequest": frozenset({"model", "prompt"}),
    "DisaggregatedParams": frozenset({"request_type"}),
    "ResponseFormat": frozenset({"type"}),
    "ChatCompletionToolsParam": frozenset({"function"}),
    "FunctionDefinition": frozenset({"name"}),
    "ChatCompletionNamedToolChoiceParam": frozenset({"function"}),
    "ChatCompletionNamedFunction": frozenset({"name"}),
    "ConversationParams": frozenset({"conversation_id"}),
    "ThinkingParam": frozenset({"type"}),
}

REASONING_EFFORTS: dict[str, str] = {
    "low": ALL,
    "medium": ALL,
    "high": ALL,
    "max": NEW_ONLY,
    "none": NEW_ONLY,
}


def _accepted(table: FieldTable, version: str) -> dict[str, str]:
    return {name: kind for name, (kind, versions) in table.items() if version in versions.split()}


@dataclass(frozen=True)
class Profile:
    """One kind of worker, a version as a rule: its name, what ``/version`` says, and which features it has."""

    name: str
    reported_version: str
    accepts_msgpack: bool
    chat_context_ids: bool  # whether a chat context answer carries the prompt's token ids
    perf_metrics: bool  # whether metrics are carried by responses
    strict: bool = True  # unknown fields are refused; otherwise ignored
    tells_ids: bool = False  # chat answers can have token ids, and messages may bring those of earlier turns
    fields_of: Version | None = None  # whose fields it knows, if it is not a version of its own

    @cached_property
    def models(self) -> dict[str, dict[str, str]]:
        """Accepted fields of every request model: ``{model: {field: type}}``."""
        tables = {"ChatCompletionRequest": CHAT_FIELDS, "CompletionRequest": COMPLETION_FIELDS}
        version = self.fields_of or self.name
        return {model: _accepted(table, version) for model, table in {**tables, **NESTED_FIELDS}.items()}

    @cached_property
    def reasoning_efforts(self) -> frozenset[str]:
        """Accepted values of ``reasoning_effort``."""
        version = self.fields_of or self.name
        return frozenset(value for value, versions in REASONING_EFFORTS.items() if version in versions)

    @cached_property
    def disaggregated_keys(self) -> tuple[str, ...]:
        """The keys of ``disaggregated_params`` in an answer: workers dump all they know, nulls included."""
        return tuple(self.models["DisaggregatedParams"])


PROFILES: dict[str, Profile] = {
    "old": Profile("old", "1.2.0", accepts_msgpack=False, chat_context_ids=False, perf_metrics=False),
    "jul": Profile("jul", "1.3.0rc24", accepts_msgpack=True, chat_context_ids=True, perf_metrics=True),
    "new": Profile("new", "1.3.0rc30", accepts_msgpack=True, chat_context_ids=True, perf_metrics=True),
    # NeMo-RL's own server around an engine: it parses JSON and takes from it what it knows.
    "nemo": Profile(
        "nemo",
        "nemo-rl",
        accepts_msgpack=False,
        chat_context_ids=True,
        perf_metrics=False,
        strict=False,
        tells_ids=True,
        fields_of="new",
    ),
}
