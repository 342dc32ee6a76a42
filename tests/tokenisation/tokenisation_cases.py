"""Requests of which the golden files hold the prompts' ids, by name: completions have a prompt, chats have messages."""

from typing import Any

WEATHER = {
    "type": "function",
    "function": {
        # Not the order of the workers' model: they write name, description, parameters, strict.
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Köln, 東京 & <others>"}},
            "required": ["city"],
        },
        "strict": True,
        "description": "Weather of a city",
        "name": "weather",
    },
}
BARE = {"function": {"name": "now"}, "type": "function"}
USER = {"role": "user", "content": "What's the weather in Köln? 🙂"}
CALL = {
    "id": "call-1",
    "type": "function",
    "function": {
        "name": "weather",
        "arguments": '{"city":"Köln","days":[1,2.50,1e3],"exact":true,"unit":null}',
    },
}
TURNS = [
    {"role": "system", "content": "Be terse.\n  Keep  blanks. "},
    USER,
    {"role": "assistant", "content": None, "reasoning_content": "I must look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call-1", "content": '{"degrees": 7}', "name": "weather"},
]

CASES: dict[str, dict[str, Any]] = {
    "text": {"prompt": "def naïve(x):\n\treturn x  # 東京 🙂"},
    "text_with_special_tokens": {"prompt": "<|im_start|>user\nHi<|im_end|> <|eot_id|><|begin_of_text|>"},
    "one_message": {"messages": [USER]},
    "system": {"messages": [{"role": "system", "content": "Be terse."}, USER]},
    "no_generation_prompt": {"messages": [USER], "add_generation_prompt": False},
    "parts": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "one"},
                    {"type": "text", "text": ""},
                    {"type": "text", "text": "two"},
                ],
            }
        ]
    },
    "no_content": {"messages": [USER, {"role": "assistant", "content": None}, USER]},
    "several_turns": {
        "messages": [
            USER,
            {"role": "assistant", "content": "Rain. <|im_end|>"},
            {"role": "user", "content": "And now?"},
        ]
    },
    "tools": {"messages": [TURNS[0], USER], "tools": [WEATHER, BARE]},
    "no_tools": {"messages": [USER], "tools": []},
    "tool_calls": {"messages": TURNS, "tools": [BARE, WEATHER]},
    "bundle": {
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": "Rain.",
                "prompt_token_ids": [1, 2],
                "generation_token_ids": [3],
                "generation_log_probs": [-0.5],
            },
            {"role": "user", "content": "And now?", "name": "Ann"},
        ]
    },
    "reasoning_wins": {
        "messages": [
            USER,
            {"role": "assistant", "content": "Yes", "reasoning": "r1", "reasoning_content": "r2"},
        ]
    },
    "without_thinking": {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}},
    "documents": {"messages": [USER], "documents": [{"title": "A", "text": "b"}]},
}

# What a template has no place for is left out of its golden file.
NOT_FOR = {"llama_like": frozenset({"without_thinking", "reasoning_wins"}), "qwen_like": frozenset[str]()}
