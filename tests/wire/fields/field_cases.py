"""What becomes of a field: one row each for the dialect `trtllm`, the same for all versions unless said otherwise."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sent:
    """The request is served: with these members added, and these names dropped."""

    members: dict[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """The request is refused for this member."""

    param: str


class Left(Sent):
    """Likewise, but the worker refuses it: its error says what is wrong."""


@dataclass(frozen=True)
class Case:
    fields: dict[str, Any]
    chat: Sent | Refused
    completions: Sent | Refused


def both(fields: dict[str, Any], outcome: Sent | Refused) -> Case:
    return Case(fields, outcome, outcome)


def dropped(name: str, *values: Any) -> list[Case]:
    return [both({name: value}, Sent({}, (name,))) for value in values]


def refused(name: str, *values: Any) -> list[Case]:
    return [both({name: value}, Refused(name)) for value in values]


def becomes(fields: dict[str, Any], members: dict[str, Any], *names: str) -> Case:
    return both(fields, Sent(members, names))


def chat_only(fields: dict[str, Any], outcome: Sent | Refused, param: str | None = None) -> Case:
    return Case(fields, outcome, Refused(param or next(iter(fields))))


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
EBNF = 'root ::= "a" | "b"'
MEANINGLESS = ("x", 1, {"a": 1}, ["a"], True)

CASES: list[Case] = [
    # Dropped, whatever their value.
    *(
        case
        for name in (
            "store", "metadata", "custom_labels", "client_metadata", "service_tier", "safety_identifier", "program_id",
            "trial", "tags", "guardrails", "drop_params", "api_base", "litellm_call_id", "litellm_metadata",
            "litellm_params", "litellm_session_id", "litellm_trace_id", "request_id", "rid", "prompt_cache_key",
            "promptCacheKey", "session_id", "prompt_cache_retention", "prompt_cache_options", "keep_alive",
            "required_prefix_token_ids", "return_tokens_as_token_ids", "return_token_ids", "return_prompt_token_ids",
            "return_prompt_text", "return_meta_info", "return_cached_tokens_details", "return_token_offsets",
            "return_mm_kwargs", "stream_interval", "tool_stream", "prediction", "verbosity", "routed_dp_rank",
            "data_parallel_rank", "guided_decoding_backend", "guided_decoding_disable_fallback",
            "guided_decoding_disable_additional_properties", "disaggregated_params", "prompt_token_ids_b64",
            "injected_chat_template_kwargs", "kv_transfer_params", "ec_transfer_params", "bootstrap_host",
            "bootstrap_port", "bootstrap_room", "disagg_prefill_dp_rank",
        )
        for case in dropped(name, *MEANINGLESS)
    ),
    # Dropped when they ask for nothing.
    *dropped("session_params", {}),
    *refused("session_params", {"id": "s"}),
    *dropped("return_routed_experts", False, 0),
    *refused("return_routed_experts", True),
    *dropped("routed_experts_start_len", 0),
    *refused("routed_experts_start_len", 3),
    *dropped("routed_experts_prompt_start", 0),
    *refused("routed_experts_prompt_start", 3),
    *dropped("return_hidden_states", False),
    *refused("return_hidden_states", True, "last"),
    *dropped("separate_reasoning", True),
    *refused("separate_reasoning", False),
    *dropped("include_reasoning", True),
    *refused("include_reasoning", False),
    *dropped("stream_reasoning", True),
    *refused("stream_reasoning", False),
    *dropped("vllm_xargs", {}),
    *refused("vllm_xargs", {"a": 1}),
    *dropped("moderation", {"mode": "score"}, False),
    *refused("moderation", {"mode": "block"}, True),
    # Refused: no equivalent.
    *dropped("modalities", ["text"]),
    *refused("modalities", ["text", "audio"], "audio"),
    *refused("audio", {"voice": "x"}),
    *refused("web_search_options", {}),
    *refused("prompt_logprobs", 0, 1),
    *refused("logprob_token_ids", [1]),
    *dropped("return_logprob", False),
    *refused("return_logprob", True),
    *refused("allowed_token_ids", [1]),
    *dropped("bad_words", []),
    *refused("bad_words", ["x"]),
    *dropped("bad_words_token_ids", []),
    *refused("bad_words_token_ids", [[1]]),
    *dropped("watermarking", False),
    *refused("watermarking", {"a": 1}),
    *dropped("repetition_detection", False),
    *refused("repetition_detection", {"a": 1}),
    *dropped("custom_logit_processor", ""),
    *refused("custom_logit_processor", "x"),
    *dropped("custom_params", {}),
    *refused("custom_params", {"a": 1}),
    *dropped("logits_processors", []),
    *refused("logits_processors", ["x"]),
    *dropped("stop_regex", "", []),
    *refused("stop_regex", "a+"),
    *dropped("typical_p", 1, 1.0),
    *refused("typical_p", 0.5),
    *dropped("top_a", 0, 0.0),
    *refused("top_a", 0.5),
    *dropped("sampling_params", {}),
    *refused("sampling_params", {"temperature": 1}),
    *dropped("prompt_embeds", []),
    *refused("prompt_embeds", "AAAA"),
    *refused("text", "x"),
    *dropped("continue_final_message", False),
    *refused("continue_final_message", True),
    *refused("max_dynamic_patch", 1),
    *refused("images_config", {}),
    *dropped("use_audio_in_video", False),
    *refused("use_audio_in_video", True),
    *dropped("truncation_side", "left"),
    *refused("truncation_side", "right"),
    *refused("lora_path", "x"),
    *refused("ngram_corpus_id", "x"),
    *refused("task", "x"),
    *refused("guided_whitespace_pattern", "x"),
    *dropped("guided_decoding_disable_any_whitespace", False),
    *refused("guided_decoding_disable_any_whitespace", True),
    # The token budget.
    becomes({"max_tokens": 5}, {"max_tokens": 5}),
    becomes({"max_completion_tokens": 5}, {"max_tokens": 5}),
    becomes({"max_completion_tokens": 5, "max_tokens": 6}, {"max_tokens": 5}),
    becomes({"max_new_tokens": 5}, {"max_tokens": 5}),
    becomes({"max_output_tokens": 5}, {"max_tokens": 5}),
    becomes({"max_new_tokens": 5, "max_tokens": 5}, {"max_tokens": 5}),
    becomes({"max_new_tokens": 5, "max_completion_tokens": 5}, {"max_tokens": 5}),
    becomes({"max_completion_tokens": 5, "max_new_tokens": 5}, {"max_tokens": 5}),
    both({"max_new_tokens": 5, "max_tokens": 6}, Refused("max_new_tokens")),
    both({"max_new_tokens": 5, "max_completion_tokens": 6}, Refused("max_new_tokens")),
    both({"max_completion_tokens": 6, "max_new_tokens": 5}, Refused("max_new_tokens")),
    # Sampling.
    becomes({"top_k": -1}, {}, "top_k"),
    becomes({"top_k": 20}, {"top_k": 20}),
    becomes({"thinking_token_budget": -1}, {}, "thinking_token_budget"),
    becomes({"thinking_token_budget": 9}, {"thinking_token_budget": 9}),
    becomes({"thinking_budget": 9}, {"thinking_token_budget": 9}),
    becomes({"truncate_prompt_tokens": 9}, {"truncate_prompt_tokens": 9}),
    *refused("truncate_prompt_tokens", -1, 0),
    becomes({"priority": 0}, {}, "priority"),
    *refused("priority", 1, -1, 5, True, 1.5, "high"),
    becomes({"no_stop_trim": True}, {"include_stop_str_in_output": True}),
    becomes({"no_stop_trim": False}, {}, "no_stop_trim"),
    becomes({"logit_bias": {"5": 1}, "user": "u"}, {"logit_bias": {"5": 1}, "user": "u"}),
    becomes({"n": 1, "best_of": 1, "use_beam_search": False}, {"n": 1, "best_of": 1, "use_beam_search": False}),
    Case({"logprobs": 0}, Left({"logprobs": 0}), Sent({"logprobs": 1})),
    Case({"logprobs": 2, "echo": False}, Left({"logprobs": 2, "echo": False}), Sent({"logprobs": 2, "echo": False})),
    Case({"logprobs": 1, "echo": True}, Left({"logprobs": 1, "echo": True}), Refused("logprobs")),
    Case({"logprobs": True}, Sent({"logprobs": True}), Left({"logprobs": True})),
    Case({"logprobs": False}, Sent({"logprobs": False}), Sent({}, ("logprobs",))),
    Case({"echo": True}, Sent({"echo": True}), Sent({"echo": True})),
    Case({"top_logprobs": 0}, Sent({}, ("top_logprobs",)), Sent({}, ("top_logprobs",))),
    chat_only({"top_logprobs": 2}, Refused("top_logprobs")),
    Case(
        {"top_logprobs": 2, "logprobs": True},
        Sent({"top_logprobs": 2, "logprobs": True}),
        Refused("top_logprobs"),
    ),
    Case(
        {"top_logprobs": 0, "logprobs": True},
        Sent({"top_logprobs": 0, "logprobs": True}),
        Left({"logprobs": True}, ("top_logprobs",)),
    ),
    chat_only({"cache_salt": "s"}, Sent({"cache_salt": "s"})),
    chat_only({"extra_key": "s"}, Sent({"cache_salt": "s"})),
    *refused("prompt_token_ids", [1]),
    *refused("input_ids", [1]),
    # The response's format.
    becomes({"guided_json": SCHEMA}, {"response_format": JSON_SCHEMA}),
    becomes({"guided_json": '{"type": "object"}'}, {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    }),
    *refused("guided_json", "no schema", 1, ["a"]),
    becomes({"json_schema": SCHEMA}, {"response_format": JSON_SCHEMA}),
    becomes({"guided_regex": "a+"}, {"response_format": {"type": "regex", "regex": "a+"}}),
    becomes({"regex": "a+"}, {"response_format": {"type": "regex", "regex": "a+"}}),
    becomes({"guided_choice": ["a", "b.c (d)"]}, {"response_format": {"type": "regex", "regex": r"(a|b\.c \(d\))"}}),
    *refused("guided_choice", [], "a", [1]),
    becomes({"guided_grammar": EBNF}, {"response_format": {"type": "ebnf", "ebnf": EBNF}}),
    *refused("guided_grammar", 'start: "a"'),
    becomes({"ebnf": EBNF}, {"response_format": {"type": "ebnf", "ebnf": EBNF}}),
    *refused("ebnf", {"a": 1}, 'start: "a"'),
    becomes({"guided_json_object": True}, {"response_format": {"type": "json_object"}}),
    becomes({"guided_json_object": False}, {}),
    becomes({"structural_tag": {"type": "structural_tag", "format": {"a": 1}}}, {
        "response_format": {"type": "structural_tag", "format": {"a": 1}}
    }),
    *refused("structural_tag", {"structures": [], "triggers": []}, "x", 1),
    becomes({"structured_outputs": {"json": SCHEMA}}, {"response_format": JSON_SCHEMA}),
    becomes({"structured_outputs": {"choice": ["a"], "json": None}},
            {"response_format": {"type": "regex", "regex": "(a)"}}),
    becomes({"structured_outputs": {"json_object": True, "disable_fallback": True}},
            {"response_format": {"type": "json_object"}}, "structured_outputs.disable_fallback"),
    becomes({"structured_outputs": {"regex": "a", "disable_any_whitespace": False}},
            {"response_format": {"type": "regex", "regex": "a"}}, "structured_outputs.disable_any_whitespace"),
    both({"structured_outputs": {"regex": "a", "disable_any_whitespace": True}},
         Refused("structured_outputs.disable_any_whitespace")),
    both({"structured_outputs": {"unheard_of": 1}}, Refused("structured_outputs.unheard_of")),
    both({"structured_outputs": {"json": SCHEMA, "regex": "a"}}, Refused("structured_outputs.regex")),
    *refused("structured_outputs", "x"),
    both({"guided_json": SCHEMA, "response_format": {"type": "json_object"}}, Refused("guided_json")),
    both({"guided_json": SCHEMA, "guided_regex": "a"}, Refused("guided_regex")),
    *(becomes({"response_format": form}, {"response_format": form}) for form in (
        {"type": "text"}, {"type": "json_object"}, {"type": "json", "schema": SCHEMA},
        {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}},
        {"type": "regex", "regex": "a"}, {"type": "ebnf", "ebnf": EBNF}, {"type": "structural_tag", "format": {}},
    )),
    becomes({"response_format": {"type": "json_object", "strict": True, "schema": None}},
            {"response_format": {"type": "json_object"}}, "response_format.strict"),
    becomes({"response_format": {"type": "grammar", "grammar": EBNF}},
            {"response_format": {"type": "ebnf", "ebnf": EBNF}}),
    both({"response_format": {"type": "grammar", "value": 'start: "a"'}}, Refused("response_format")),
    both({"response_format": {"type": "grammar"}}, Refused("response_format")),
    both({"response_format": {"type": "structural_tag", "structures": [], "triggers": []}},
         Refused("response_format.structures")),
    *refused("response_format", "json"),
    # Packed.
    becomes({"extra_body": {"top_k": 5, "store": True, "seed": None}}, {"top_k": 5}, "store"),
    becomes({"extra_body": {"max_completion_tokens": 4}}, {"max_tokens": 4}),
    becomes({"extra_body": {"disaggregated_params": {"a": 1}, "prompt_token_ids_b64": "AA=="}}, {},
            "disaggregated_params", "prompt_token_ids_b64"),
    becomes({"extra_body": {}}, {}),
    becomes({"extra_body": {"seed": 1}, "seed": 1}, {"seed": 1}),
    both({"extra_body": {"seed": 2}, "seed": 1}, Refused("extra_body.seed")),
    both({"extra_body": {"allowed_token_ids": [1]}}, Refused("allowed_token_ids")),
    both({"extra_body": {"prompt_token_ids": [1]}}, Refused("prompt_token_ids")),
    both({"extra_body": {"extra_body": {}}}, Refused("extra_body.extra_body")),
    *refused("extra_body", "x", [1]),
    becomes({"nvext": {"ignore_eos": True, "top_k": -1, "annotations": ["a"], "agent_hints": {}}},
            {"ignore_eos": True}, "nvext.annotations", "nvext.agent_hints", "top_k"),
    becomes({"nvext": {"max_thinking_tokens": 7, "guided_regex": "a"}},
            {"thinking_token_budget": 7, "response_format": {"type": "regex", "regex": "a"}}),
    both({"nvext": {"token_data": [1]}}, Refused("nvext.token_data")),
    both({"nvext": {"use_raw_prompt": True}}, Refused("nvext.use_raw_prompt")),
    both({"nvext": {"priority": 3}}, Refused("priority")),
    becomes({"options": {"num_predict": 4, "repeat_penalty": 1.1, "num_ctx": 9}},
            {"max_tokens": 4, "repetition_penalty": 1.1}, "options.num_ctx"),
    both({"options": {"mirostat": 1}}, Refused("options.mirostat")),
    # Thinking.
    chat_only({"reasoning_effort": "high"}, Sent({"reasoning_effort": "high"})),
    chat_only({"reasoning_effort": "minimal"}, Refused("reasoning_effort")),
    chat_only({"reasoning_effort": "xhigh"}, Refused("reasoning_effort")),
    chat_only({"reasoning": {"effort": "low"}}, Sent({"reasoning_effort": "low"})),
    chat_only({"reasoning": {"enabled": False}}, Sent({"chat_template_kwargs": {"enable_thinking": False}})),
    chat_only({"reasoning": {"max_tokens": 9, "exclude": False, "summary": "auto"}},
              Sent({"thinking_token_budget": 9}, ("reasoning.exclude", "reasoning.summary"))),
    chat_only({"reasoning": {"exclude": True}}, Refused("reasoning.exclude"), "reasoning"),
    chat_only({"reasoning": {"enabled": "yes"}}, Refused("reasoning.enabled"), "reasoning"),
    chat_only({"reasoning": {"effort": "minimal"}}, Refused("reasoning_effort"), "reasoning"),
    chat_only({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, Refused("reasoning.effort"), "reasoning"),
    chat_only({"enable_thinking": False}, Sent({"chat_template_kwargs": {"enable_thinking": False}})),
    chat_only({"enable_thinking": 0}, Refused("enable_thinking")),
    chat_only({"enable_thinking": True, "chat_template_kwargs": {"a": 1}},
              Sent({"chat_template_kwargs": {"a": 1, "enable_thinking": True}})),
    chat_only({"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": True}},
              Sent({"chat_template_kwargs": {"enable_thinking": True}})),
    chat_only({"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
              Refused("enable_thinking")),
    chat_only({"chat_template_args": {"a": 1}}, Sent({"chat_template_kwargs": {"a": 1}})),
    chat_only({"thinking": True}, Sent({"chat_template_kwargs": {"thinking": True}})),
    chat_only({"think": False}, Sent({"chat_template_kwargs": {"enable_thinking": False}})),
    chat_only({"think": "low"}, Sent({"reasoning_effort": "low"})),
    chat_only({"thinking": {"type": "enabled", "display": "x"}}, Refused("thinking.display"), "thinking"),
    chat_only({"thinking": "x"}, Refused("thinking")),
    # Tools.
    chat_only({"tools": [TOOL]}, Sent({"tools": [TOOL]})),
    chat_only({"tools": [{**TOOL, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True}, TOOL]},
              Sent({"tools": [TOOL, TOOL]}, ("tools.cache_control", "tools.eager_input_streaming"))),
    chat_only({"tools": [{"type": "function", "function": {"name": "f", "required": [], "defer_loading": True}}] * 2},
              Sent({"tools": [{"type": "function", "function": {"name": "f"}}] * 2},
                   ("tools.function.required", "tools.function.defer_loading"))),
    chat_only({"tools": [{"function": {"name": "f", "unheard_of": 1}}]},
              Sent({"tools": [{"function": {"name": "f"}}]}, ("tools.function.unheard_of",))),
    chat_only({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, Refused("tools[0].type"), "tools"),
    chat_only({"tools": [TOOL, {"type": "function", "name": "f"}]}, Refused("tools[1].function"), "tools"),
    chat_only({"tools": [1]}, Refused("tools[0]"), "tools"),
    chat_only({"tools": {"a": 1}}, Refused("tools")),
    Case({"tools": []}, Sent({"tools": []}), Sent({}, ("tools",))),
    chat_only({"functions": [{"name": "f"}]}, Sent({"tools": [{"type": "function", "function": {"name": "f"}}]})),
    chat_only({"functions": [{"name": "f"}], "function_call": {"name": "f"}},
              Sent({"tools": [{"type": "function", "function": {"name": "f"}}],
                    "tool_choice": {"type": "function", "function": {"name": "f"}}})),
    chat_only({"function_call": "auto", "functions": [{"name": "f"}]},
              Sent({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto"}),
              "function_call"),
    Case({"functions": []}, Sent({}), Sent({}, ("functions",))),
    chat_only({"functions": {"a": 1}}, Refused("functions")),
    chat_only({"tools": [TOOL], "tool_choice": "any"}, Sent({"tools": [TOOL], "tool_choice": "required"})),
    chat_only({"tools": [TOOL], "tool_choice": "required"}, Sent({"tools": [TOOL], "tool_choice": "required"})),
    Case({"tool_choice": "auto"}, Sent({}), Sent({}, ("tool_choice",))),
    Case({"tool_choice": "none"}, Sent({"tool_choice": "none"}), Sent({}, ("tool_choice",))),
    chat_only({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f", "x": 1}, "y": 1}},
              Sent({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
                   ("tool_choice.y", "tool_choice.function.x"))),
    chat_only({"tool_choice": {"type": "allowed_tools", "tools": []}}, Refused("tool_choice.type"), "tool_choice"),
    chat_only({"tool_choice": {"type": "custom"}}, Refused("tool_choice.type"), "tool_choice"),
    Case({"parallel_tool_calls": None}, Sent(), Sent()),
    # Streams.
    becomes({"stream_options": {"include_usage": True}}, {}, "stream_options"),
    becomes({"stream_options": {"include_usage": True}, "stream": False}, {"stream": False}, "stream_options"),
    becomes({"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
            {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    becomes({"stream_options": {"include_obfuscation": False}, "stream": True}, {"stream": True, "stream_options": {}},
            "stream_options.include_obfuscation"),
    becomes({"stream_options": {"include_usage": True, "unheard_of": 1}, "stream": True},
            {"stream": True, "stream_options": {"include_usage": True}}, "stream_options.unheard_of"),
    both({"stream": True, "stream_options": "x"}, Refused("stream_options")),
    # Nulls and unknown ones.
    becomes(dict.fromkeys(("n", "top_k", "seed", "stop", "response_format", "logprobs", "echo", "unheard_of")), {}),
    Case(dict.fromkeys(("tools", "tool_choice", "detokenize", "store", "prompt_token_ids")), Sent(), Sent()),
    *dropped("unheard_of", *MEANINGLESS),
    Case({"detokenize": False}, Refused("detokenize"), Sent({"detokenize": False})),
    Case({"detokenize": True}, Sent({}, ("detokenize",)), Sent({"detokenize": True})),
    Case({"suffix": "x"}, Refused("suffix"), Left({"suffix": "x"})),
]  # fmt: skip
