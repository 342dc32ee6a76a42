"""Fields that can be left out: they have no effect on the tokens produced.

A value that does ask for something is refused, since its sender depends on the answer.
"""

from proxy.wire.fields.rule import Ask, Drop, DropIf, DropUnlessStrict, Rule

ASKS_IDS = "return_token_ids"
ASKS_NAMES = "return_tokens_as_token_ids"

_DROP = Drop()
_ASK_WORKERS = Ask(
    "kept; prompt_token_ids and the choices' token_ids are in the answer if the worker tells ids", keep=True
)

IDS_OF_WORKERS = (
    Rule(ASKS_IDS, _ASK_WORKERS, "the prompt's ids are those of the hand-off"),
    Rule(ASKS_NAMES, _ASK_WORKERS, "NeMo Gym asks so: it needs both, or /tokenize"),
)
"""For dialects whose workers tell the ids of what they generate on chat too."""

BOOK_KEEPING = (
    Rule("store", _DROP, "OpenAI's storage of answers"),
    Rule("metadata", _DROP, "labels of the client"),
    Rule("custom_labels", _DROP, "labels of the client"),
    Rule("client_metadata", _DROP, "labels of the client"),
    Rule("service_tier", _DROP, "OpenAI's price classes"),
    Rule("safety_identifier", _DROP, "OpenAI's abuse detection"),
    Rule("program_id", _DROP, "labels of a training framework"),
    Rule("trial", _DROP, "labels of a training framework"),
    Rule("tags", _DROP, "meant for LiteLLM"),
    Rule("guardrails", _DROP, "meant for LiteLLM"),
    Rule("drop_params", _DROP, "meant for LiteLLM"),
    Rule("api_base", _DROP, "meant for LiteLLM"),
    Rule("litellm_call_id", _DROP, "meant for LiteLLM"),
    Rule("litellm_metadata", _DROP, "meant for LiteLLM"),
    Rule("litellm_params", _DROP, "meant for LiteLLM"),
    Rule("litellm_session_id", _DROP, "meant for LiteLLM"),
    Rule("litellm_trace_id", _DROP, "meant for LiteLLM"),
    Rule("request_id", _DROP, "the proxy's request id when the header x-request-id is absent"),
    Rule("rid", _DROP, "the proxy's request id when the header x-request-id is absent"),
    Rule(
        "moderation",
        DropIf((False, {}, {"mode": "score"}), "is not supported: the workers moderate nothing"),
        "a service of OpenAI",
    ),
)

CACHES = (
    Rule("prompt_cache_key", _DROP, "used as conversation id"),
    Rule("promptCacheKey", _DROP, "used as conversation id"),
    Rule("session_id", _DROP, "used as conversation id"),
    Rule("prompt_cache_retention", _DROP, "OpenAI's prompt cache"),
    Rule("prompt_cache_options", _DROP, "OpenAI's prompt cache"),
    Rule("keep_alive", _DROP, "Ollama's model loading"),
    Rule("session_params", DropIf(({},), "is not supported: the workers cannot branch a session")),
    Rule("required_prefix_token_ids", _DROP, "NeMo-RL: the workers render the whole conversation"),
)

ANSWER_DETAILS = (
    Rule(
        ASKS_NAMES,
        Ask("completions: log probabilities name token_id:N; else dropped"),
        "the workers of chat tell no ids; kept with dialect nemo_rl",
    ),
    Rule(
        ASKS_IDS,
        Ask(
            "completions: prompt_token_ids and the choices' token_ids are in the answer if the request has "
            "detokenize: false or the proxy a tokenizer; else dropped, and neither is in it"
        ),
        "the workers of chat tell no ids of what they generate, and of completions either text or ids",
    ),
    Rule("return_prompt_token_ids", _DROP, "adds to the answer only"),
    Rule("return_prompt_text", _DROP, "adds to the answer only"),
    Rule("return_meta_info", _DROP, "adds to the answer only"),
    Rule("return_cached_tokens_details", _DROP, "adds to the answer only"),
    Rule("return_token_offsets", _DROP, "adds to the answer only"),
    Rule("return_mm_kwargs", _DROP, "adds to the answer only"),
    Rule("return_routed_experts", DropIf((False, 0), "is not supported: the workers do not report routing")),
    Rule("routed_experts_start_len", DropIf((0,), "is not supported: the workers do not report routing")),
    Rule("routed_experts_prompt_start", DropIf((0,), "is not supported: the workers do not report routing")),
    Rule(
        "return_hidden_states",
        DropIf((False, 0, ""), "is not supported: the workers do not return hidden states"),
    ),
    Rule("separate_reasoning", DropIf((True,), "cannot be switched off: the workers' parser separates it")),
    Rule("include_reasoning", DropIf((True,), "cannot be switched off: the workers return the reasoning")),
    Rule("stream_reasoning", DropIf((True,), "cannot be switched off: reasoning is streamed as it comes")),
    Rule("stream_interval", _DROP, "how an answer is cut into events"),
    Rule("tool_stream", _DROP, "how an answer is cut into events"),
    Rule("prediction", _DROP, "a hint that makes answers faster, not different"),
    Rule("verbosity", DropUnlessStrict(), "a mild effect on style; the workers have no equivalent"),
    Rule("vllm_xargs", DropIf(({},), "is not supported: it configures extensions of vLLM")),
)
