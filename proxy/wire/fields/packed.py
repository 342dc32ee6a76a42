"""Objects in which clients pack other fields."""

from proxy.wire.fields.rule import Rule, Unpack

EXTRA_BODY = Unpack({}, others="keep")

NVEXT = Unpack(
    {
        "ignore_eos": "ignore_eos",
        "top_k": "top_k",
        "min_p": "min_p",
        "repetition_penalty": "repetition_penalty",
        "max_thinking_tokens": "thinking_token_budget",
        "cache_salt": "cache_salt",
        "guided_json": "guided_json",
        "guided_regex": "guided_regex",
        "guided_grammar": "guided_grammar",
        "guided_choice": "guided_choice",
        "priority": "priority",
        # Routing and bookkeeping of Dynamo.
        "annotations": None,
        "extra_fields": None,
        "agent_context": None,
        "agent_hints": None,
        "cache_control": None,
        "session_control": None,
        "backend_instance_id": None,
        "prefill_worker_id": None,
        "decode_worker_id": None,
        "dp_rank": None,
        "prefill_dp_rank": None,
        "enable_local_indexer": None,
        "expected_output_tokens": None,
        "request_timestamp_ms": None,
        "router": None,
        "guided_decoding_backend": None,
    }
)

OLLAMA = Unpack(
    {
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "min_p": "min_p",
        "seed": "seed",
        "stop": "stop",
        "num_predict": "max_tokens",
        "repeat_penalty": "repetition_penalty",
        "presence_penalty": "presence_penalty",
        "frequency_penalty": "frequency_penalty",
        # How the model is loaded.
        "num_ctx": None,
        "num_batch": None,
        "num_gpu": None,
        "num_thread": None,
        "num_keep": None,
        "main_gpu": None,
        "use_mmap": None,
        "use_mlock": None,
        "numa": None,
    }
)

PACKED = (
    Rule("extra_body", EXTRA_BODY, "an argument of OpenAI's library, sent literally"),
    Rule("nvext", NVEXT, "Dynamo's extensions"),
    Rule("options", OLLAMA, "Ollama's options"),
)
