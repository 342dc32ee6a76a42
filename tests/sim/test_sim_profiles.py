"""The field tables, against literal copies of the facts."""

import json

import pytest

from proxy.sim.openapi import openapi_document
from proxy.sim.profiles import PROFILES


def names(text: str) -> set[str]:
    return set(text.split())


COMPLETIONS_NEW = names(
    """model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream
    stream_options suffix temperature top_p user lora_request prompt_ignore_length use_beam_search top_k top_p_min
    min_p repetition_penalty length_penalty early_stopping stop_token_ids include_stop_str_in_output ignore_eos
    min_tokens skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens return_context_logits
    detokenize thinking_token_budget add_special_tokens response_format disaggregated_params
    priority conversation_params"""
)
CHAT_NEW = names(
    """messages prompt_token_ids prompt_token_ids_b64 model frequency_penalty logit_bias logprobs top_logprobs
    max_tokens max_completion_tokens n presence_penalty response_format seed stop stream stream_options temperature
    top_p tools tool_choice parallel_tool_calls user reasoning_effort thinking thinking_token_budget
    prompt_ignore_length best_of use_beam_search top_k top_p_min min_p repetition_penalty length_penalty early_stopping
    stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens
    truncate_prompt_tokens lora_request echo add_generation_prompt add_special_tokens documents chat_template
    chat_template_kwargs injected_chat_template_kwargs media_io_kwargs disaggregated_params conversation_params
    cache_salt priority agent_hierarchy mm_processor_kwargs"""
)
DISAGGREGATED_NEW = names(
    """request_type first_gen_tokens first_gen_log_probs first_gen_logits ctx_request_id encoded_opaque_state
    draft_tokens disagg_request_id ctx_dp_rank ctx_info_endpoint schedule_style ctx_usage return_prompt_token_ids_b64
    resolved_thinking"""
)
CHAT_ONLY_NEW = {"parallel_tool_calls", "thinking", "injected_chat_template_kwargs", "priority"}
NOT_OPTIONAL = names(
    """n use_beam_search top_k top_p_min min_p repetition_penalty include_stop_str_in_output ignore_eos min_tokens
    skip_special_tokens spaces_between_special_tokens return_context_logits detokenize add_special_tokens"""
)


def fields(profile: str, model: str) -> set[str]:
    return set(PROFILES[profile].models[model])


def test_new_fields() -> None:
    assert fields("new", "CompletionRequest") == COMPLETIONS_NEW
    assert fields("new", "ChatCompletionRequest") == CHAT_NEW
    assert fields("new", "DisaggregatedParams") == DISAGGREGATED_NEW


def test_jul_lacks_what_came_later_and_keeps_the_conversation_id() -> None:
    assert fields("jul", "CompletionRequest") == COMPLETIONS_NEW - {"priority"}
    assert fields("jul", "ChatCompletionRequest") == CHAT_NEW - CHAT_ONLY_NEW
    assert fields("jul", "DisaggregatedParams") == DISAGGREGATED_NEW - {"resolved_thinking"} | {
        "conversation_id"
    }


def test_old_is_jul_without_a_few_fields() -> None:
    assert fields("jul", "CompletionRequest") - fields("old", "CompletionRequest") == {"conversation_params"}
    assert fields("jul", "ChatCompletionRequest") - fields("old", "ChatCompletionRequest") == {
        "conversation_params",
        "prompt_token_ids_b64",
    }
    assert fields("jul", "DisaggregatedParams") - fields("old", "DisaggregatedParams") == {
        "return_prompt_token_ids_b64",
        "schedule_style",
        "ctx_usage",
    }
    assert fields("jul", "FunctionDefinition") - fields("old", "FunctionDefinition") == {"strict"}
    for model in ("CompletionRequest", "ChatCompletionRequest", "DisaggregatedParams"):
        assert fields("old", model) <= fields("jul", model)
    assert not PROFILES["old"].accepts_msgpack
    assert not PROFILES["old"].chat_context_ids


@pytest.mark.parametrize("profile", ["old", "jul", "new"])
def test_nested_fields(profile: str) -> None:
    assert fields(profile, "StreamOptions") == {"include_usage", "continuous_usage_stats"}
    assert fields(profile, "ResponseFormat") == {"type", "schema", "json_schema", "regex", "ebnf", "format"}
    assert fields(profile, "ChatCompletionToolsParam") == {"type", "function"}
    assert fields(profile, "FunctionDefinition") - {"strict"} == {"name", "description", "parameters"}


@pytest.mark.parametrize("profile", ["old", "jul", "new"])
def test_fields_that_refuse_null(profile: str) -> None:
    completion = PROFILES[profile].models["CompletionRequest"]
    assert {name for name, kind in completion.items() if not kind.endswith("?")} == NOT_OPTIONAL | {
        "model",
        "prompt",
    }
    chat = PROFILES[profile].models["ChatCompletionRequest"]
    shared = NOT_OPTIONAL - {"return_context_logits", "detokenize"}
    own = {"messages", "model", "echo", "add_generation_prompt"}
    assert {name for name, kind in chat.items() if not kind.endswith("?")} == shared | own


@pytest.mark.parametrize("profile", ["old", "jul", "new"])
def test_reasoning_efforts(profile: str) -> None:
    efforts = {"low", "medium", "high"}
    assert PROFILES[profile].reasoning_efforts == (efforts | {"max", "none"} if profile == "new" else efforts)


@pytest.mark.parametrize("profile", ["old", "jul", "new"])
def test_openapi_lists_exactly_the_accepted_fields(profile: str) -> None:
    schemas = json.loads(openapi_document(PROFILES[profile]))["components"]["schemas"]
    chat = set(schemas["ChatCompletionRequest"]["properties"])
    assert chat == fields(profile, "ChatCompletionRequest") - {"max_completion_tokens"}
    for model in ("CompletionRequest", "DisaggregatedParams", "FunctionDefinition", "StreamOptions"):
        assert set(schemas[model]["properties"]) == fields(profile, model)
    assert ("ConversationParams" in schemas) == (profile != "old")
