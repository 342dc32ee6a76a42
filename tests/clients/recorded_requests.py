"""What clients put on the wire, for those that are not run here, or only by `make test-long`.

AIPerf and GuideLLM need an environment of their own; their bodies were recorded from their own formatters:
`aiperf.endpoints.{openai_chat,openai_completions}` of 0.13.0 and
`guidellm.backends.openai.request_handlers` of 0.8.1. The others are as their documentation and source show them.
"""

from typing import Any

TEXT = [{"role": "user", "content": [{"type": "text", "text": "hello world"}]}]
PLAIN = [{"role": "user", "content": "hello world"}]
USAGE = {"include_usage": True}
EVERY_USAGE = {"include_usage": True, "continuous_usage_stats": True}
CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
TOOL = {
    "type": "function",
    "function": {"name": "read", "description": "d", "parameters": {"type": "object"}},
}

REQUESTS: dict[str, dict[str, Any]] = {
    # aiperf profile --endpoint-type chat
    "aiperf-chat": {"messages": PLAIN, "model": "sim", "stream": False, "max_completion_tokens": 8},
    "aiperf-chat-stream": {
        "messages": [{"role": "user", "name": None, "content": "hello world"}],
        "model": "sim",
        "stream": True,
        "max_completion_tokens": 8,
        "ignore_eos": True,
        "min_tokens": 8,
        "stream_options": EVERY_USAGE,
    },
    "aiperf-chat-dynamo": {
        "messages": PLAIN,
        "model": "sim",
        "stream": True,
        "max_tokens": 8,
        "nvext": {"ignore_eos": True, "annotations": ["llm_metrics"]},
        "stream_options": USAGE,
    },
    "aiperf-completions": {"prompt": "hello world", "model": "sim", "stream": False, "max_tokens": 8},
    "aiperf-completions-stream": {
        "prompt": ["hello world"],
        "model": "sim",
        "stream": True,
        "max_tokens": 8,
        "ignore_eos": True,
        "stream_options": USAGE,
    },
    # guidellm benchmark
    "guidellm-chat": {
        "model": "sim",
        "stream": True,
        "stream_options": EVERY_USAGE,
        "max_completion_tokens": 8,
        "stop": None,
        "ignore_eos": True,
        "messages": TEXT,
    },
    "guidellm-chat-whole": {
        "model": "sim",
        "max_completion_tokens": 8,
        "stop": None,
        "ignore_eos": True,
        "messages": TEXT,
    },
    "guidellm-completions": {
        "model": "sim",
        "stream": True,
        "stream_options": EVERY_USAGE,
        "max_tokens": 8,
        "stop": None,
        "ignore_eos": True,
        "prompt": "hello world",
    },
    # NeMo Gym, training: the second turn
    "nemo-gym": {
        "model": "sim",
        "messages": [
            *PLAIN,
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "think",
                "reasoning": "think",
                "tool_calls": [CALL],
                "prompt_token_ids": [1, 2, 3],
                "generation_token_ids": [4, 5],
                "generation_log_probs": [-0.1, -0.2],
                "routed_experts": "nrlre1:uint8:2x2x2:AAAA",
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        ],
        "logprobs": True,
        "top_logprobs": 0,
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
        "metadata": {"a": "b"},
        "chat_template_kwargs": {"enable_thinking": True},
        "temperature": 1.0,
        "top_p": 1.0,
        "max_tokens": 8,
        "parallel_tool_calls": False,
        "tools": [TOOL],
        "tool_choice": "auto",
        "n": 1,
    },
    "nemo-gym-completions": {
        "model": "sim",
        "prompt": "hello",
        "max_tokens": 8,
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    },
    # AReaL with vLLM's dialect
    "areal": {
        "model": "sim",
        "prompt": [1, 2, 3],
        "max_tokens": 8,
        "logprobs": 0,
        "return_tokens_as_token_ids": True,
        "top_k": -1,
    },
    # lm-eval's generate_until
    "lm-eval": {
        "model": "sim",
        "messages": PLAIN,
        "max_tokens": 8,
        "temperature": 0,
        "stop": ["\n\n"],
        "seed": 1234,
    },
    # a vLLM user's extra_body
    "vllm": {
        "model": "sim",
        "messages": PLAIN,
        "max_tokens": 8,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "guided_choice": ["yes", "no"],
        "guided_decoding_backend": "xgrammar",
        "priority": 0,
        "cache_salt": "s",
        "include_reasoning": True,
        "request_id": "r-1",
    },
    "vllm-structured": {
        "model": "sim",
        "messages": PLAIN,
        "max_tokens": 8,
        "structured_outputs": {"json": {"type": "object"}},
        "add_generation_prompt": True,
        "continue_final_message": False,
        "truncate_prompt_tokens": None,
    },
    # SGLang's
    "sglang": {
        "model": "sim",
        "messages": PLAIN,
        "max_tokens": 8,
        "top_k": -1,
        "separate_reasoning": True,
        "stream_reasoning": True,
        "return_hidden_states": False,
        "rid": "r",
        "regex": "a+",
        "no_stop_trim": False,
    },
    # Agents: OpenCode, Cline
    "opencode": {
        "model": "sim",
        "messages": [
            {
                "role": "system",
                "content": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            },
            {
                "role": "assistant",
                "content": "x",
                "reasoning_content": "r",
                "refusal": None,
                "tool_calls": [CALL],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "1"},
            *PLAIN,
        ],
        "promptCacheKey": "session",
        "prompt_cache_key": "session",
        "max_tokens": 8,
        "stream": True,
        "stream_options": USAGE,
        "store": False,
        "tools": [{**TOOL, "eager_input_streaming": True, "cache_control": {"type": "ephemeral"}}],
        "tool_choice": "auto",
        "reasoning_effort": "medium",
    },
    "kilo": {
        "model": "sim",
        "messages": PLAIN,
        "max_tokens": 8,
        "presence_penalty": 0,
        "frequency_penalty": 0,
    },
    # Open WebUI in front of Ollama's fields
    "open-webui": {
        "model": "sim",
        "messages": PLAIN,
        "stream": True,
        "keep_alive": "5m",
        "options": {"num_predict": 8, "temperature": 0.1, "num_ctx": 4096},
    },
    # Gemini's OpenAI bridge replays its own keys
    "gemini-replay": {
        "model": "sim",
        "messages": [
            *PLAIN,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{**CALL, "index": 0, "extra_content": {"google": {"thought_signature": "x"}}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        ],
        "max_tokens": 8,
    },
    # inspect_ai
    "inspect": {
        "model": "sim",
        "messages": PLAIN,
        "max_completion_tokens": 8,
        "parallel_tool_calls": True,
        "reasoning_effort": "low",
        "service_tier": "auto",
        "extra_body": {"top_k": 20},
    },
    # OpenAI's API before tools
    "functions": {
        "model": "sim",
        "messages": [
            *PLAIN,
            {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}},
            {"role": "function", "name": "read", "content": "1"},
        ],
        "functions": [{"name": "read", "parameters": {"type": "object"}}],
        "function_call": "auto",
        "max_tokens": 8,
    },
}
