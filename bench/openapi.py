"""The worker's `/openapi.json`: the field names that a proxy may read from it."""

from bench.payloads import compact

_SHARED = (
    "model frequency_penalty logit_bias logprobs n presence_penalty seed stop stream stream_options temperature "
    "top_p user lora_request prompt_ignore_length best_of use_beam_search top_k top_p_min min_p repetition_penalty "
    "length_penalty early_stopping stop_token_ids include_stop_str_in_output ignore_eos min_tokens "
    "skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens echo thinking_token_budget "
    "add_special_tokens response_format disaggregated_params priority conversation_params max_tokens suffix"
)
SCHEMAS: dict[str, str] = {
    "CompletionRequest": _SHARED + " prompt return_context_logits detokenize",
    "ChatCompletionRequest": _SHARED
    + " messages prompt_token_ids prompt_token_ids_b64 top_logprobs max_completion_tokens tools tool_choice "
    "parallel_tool_calls reasoning_effort thinking add_generation_prompt documents chat_template "
    "chat_template_kwargs injected_chat_template_kwargs media_io_kwargs cache_salt agent_hierarchy "
    "mm_processor_kwargs",
    "DisaggregatedParams": "request_type first_gen_tokens first_gen_log_probs first_gen_logits ctx_request_id "
    "encoded_opaque_state draft_tokens disagg_request_id ctx_dp_rank ctx_info_endpoint schedule_style ctx_usage "
    "return_prompt_token_ids_b64 resolved_thinking",
    "StreamOptions": "include_usage continuous_usage_stats",
    "ResponseFormat": "type schema json_schema regex ebnf format",
    "ConversationParams": "conversation_id",
}


def document() -> bytes:
    """OpenAPI document with one entry in `components.schemas` for each request model."""
    schemas = {
        name: {
            "type": "object",
            "additionalProperties": False,
            "title": name,
            "properties": {field: {"title": field} for field in fields.split()},
        }
        for name, fields in SCHEMAS.items()
    }
    routes = {
        path: {
            "post": {
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
                },
                "responses": {"200": {"description": "Successful Response"}},
            }
        }
        for path, schema in (
            ("/v1/completions", "CompletionRequest"),
            ("/v1/chat/completions", "ChatCompletionRequest"),
        )
    }
    return compact(
        {
            "openapi": "3.1.0",
            "info": {"title": "FastAPI", "version": "0.1.0"},
            "paths": routes,
            "components": {"schemas": schemas},
        }
    )
