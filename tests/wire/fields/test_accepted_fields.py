"""The tables, member by member, as the workers' request models of each generation have them."""

import pytest

from proxy.wire.fields.accepted import CHAT, CLIENT_TOKEN_IDS, COMPLETIONS, INTERNAL
from proxy.wire.versions import WorkerVersion

BOTH = """
    model best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream
    stream_options temperature top_p user lora_request prompt_ignore_length use_beam_search top_k top_p_min min_p
    repetition_penalty length_penalty early_stopping stop_token_ids include_stop_str_in_output ignore_eos min_tokens
    skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens thinking_token_budget
    add_special_tokens response_format
"""
ONLY_COMPLETIONS = "prompt suffix return_context_logits detokenize"
ONLY_CHAT = """
    messages top_logprobs max_completion_tokens tools tool_choice reasoning_effort add_generation_prompt documents
    chat_template chat_template_kwargs media_io_kwargs cache_salt agent_hierarchy mm_processor_kwargs
"""
SINCE_JUL = "conversation_params"
SINCE_NEW = "priority"
SINCE_NEW_CHAT = "parallel_tool_calls thinking"


@pytest.mark.parametrize(
    ("version", "chat", "expected"),
    [
        ("old", True, BOTH + ONLY_CHAT),
        ("jul", True, BOTH + ONLY_CHAT + SINCE_JUL),
        ("new", True, " ".join((BOTH, ONLY_CHAT, SINCE_JUL, SINCE_NEW, SINCE_NEW_CHAT))),
        ("old", False, BOTH + ONLY_COMPLETIONS),
        ("jul", False, " ".join((BOTH, ONLY_COMPLETIONS, SINCE_JUL))),
        ("new", False, " ".join((BOTH, ONLY_COMPLETIONS, SINCE_JUL, SINCE_NEW))),
    ],
)
def test_tables(version: str, chat: bool, expected: str) -> None:
    assert (CHAT if chat else COMPLETIONS)[WorkerVersion(version)] == frozenset(expected.split())


@pytest.mark.parametrize("table", [CHAT, COMPLETIONS])
def test_internal_members_are_in_no_table(table: dict[WorkerVersion, frozenset[str]]) -> None:
    assert set(table) == set(WorkerVersion)
    for accepted in table.values():
        assert not accepted & (INTERNAL | CLIENT_TOKEN_IDS)


def test_internal_members() -> None:
    assert {"disaggregated_params", "prompt_token_ids_b64", "injected_chat_template_kwargs"} == INTERNAL
    assert {"prompt_token_ids", "input_ids"} == CLIENT_TOKEN_IDS


REFUSED = """
    store metadata service_tier modalities audio prediction web_search_options function_call functions top_a typical_p
    guided_json guided_regex extra_body cache_control safety_identifier prompt_cache_key verbosity return_token_ids
    return_tokens_as_token_ids prompt_logprobs allowed_token_ids bad_words kv_transfer_params
    required_prefix_token_ids session_id nvext
"""


@pytest.mark.parametrize("table", [CHAT, COMPLETIONS])
def test_what_clients_send_and_workers_refuse(table: dict[WorkerVersion, frozenset[str]]) -> None:
    for accepted in table.values():
        assert not accepted & set(REFUSED.split())
