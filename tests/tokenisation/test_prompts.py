"""What is not surely the same as a worker's own prompt is left to the worker."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.tokenisation.prompts import NotReproducible, check_members, read_chat, read_text
from proxy.tokenisation.tokenizer import PromptTokenizer
from proxy.wire.members import Members, split_object

TOKENIZER = PromptTokenizer(Path(__file__).parent / "models" / "qwen_like")
USER = {"role": "user", "content": "Hi"}
FUNCTION = {"name": "f", "arguments": "{}"}


def members(body: dict[str, Any]) -> Members:
    return split_object(json.dumps({"model": "m", **body}).encode())


def calling(**changes: Any) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": FUNCTION, **changes}
    return {"messages": [USER, {"role": "assistant", "tool_calls": [call]}]}


def text_of(body: dict[str, Any]) -> str:
    chat = "messages" in body
    check_members(members(body), chat=chat)
    return read_chat(members(body), strict_tools=True).render(TOKENIZER) if chat else read_text(members(body))


def why(body: dict[str, Any]) -> str:
    with pytest.raises(NotReproducible) as caught:
        text_of(body)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        # Anything that may change a prompt, or is not known.
        ({"add_special_tokens": True}, "member"),
        ({"chat_template": "x"}, "member"),
        ({"truncate_prompt_tokens": 5}, "member"),
        ({"prompt_token_ids": [1]}, "member"),
        ({"mm_processor_kwargs": {}}, "member"),
        ({"thinking": {"type": "enabled"}}, "member"),
        ({"reasoning_effort": "low"}, "member"),
        ({"lora_request": {}}, "member"),
        ({"brand_new_member": 1}, "member"),
        # A named tool makes the worker begin the answer itself.
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"chat_template_kwargs": {"unread": 1}}, "options"),
        ({"chat_template_kwargs": {"messages": []}}, "options"),
        ({"chat_template_kwargs": [1]}, "form"),
        ({"add_generation_prompt": 1}, "form"),
        ({"tools": [{"type": "function", "function": {"name": "f", "required": []}}]}, "form"),
        ({"messages": [{"role": "user", "content": 7}]}, "form"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "form",
        ),
        ({"messages": [{"role": "system", "content": "x", "tools": []}]}, "form"),
        (calling(index=0), "form"),
        (calling(function={"name": "f", "arguments": "no JSON"}), "form"),
        (calling(function={"name": "f", "arguments": "[1]"}), "form"),
        (calling(function={"name": "f", "arguments": ""}), "form"),
        (calling(function={"name": "f", "arguments": {}}), "form"),
        ({"messages": []}, "template"),
    ],
)
def test_chats(change: dict[str, Any], reason: str) -> None:
    assert why({"messages": [USER], **change}) == reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": "x", "add_special_tokens": False}, "member"),
        ({"prompt": "x", "echo": True}, "member"),
        ({"prompt": "x", "suffix": "y"}, "member"),
    ],
)
def test_completions(body: dict[str, Any], reason: str) -> None:
    assert why(body) == reason


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(NotReproducible, match="form"):
        read_text(split_object(b'{"prompt": "\xff"}'))


def test_older_workers_do_not_know_strict() -> None:
    body = members({"messages": [USER], "tools": [{"function": {"name": "f"}}]})
    assert read_chat(body, strict_tools=False).tools == [
        {"type": "function", "function": {"name": "f", "description": None, "parameters": None}}
    ]
    (tool,) = read_chat(body, strict_tools=True).tools or []
    assert list(tool["function"]) == ["name", "description", "parameters", "strict"]


def test_what_does_not_change_the_prompt_is_no_obstacle() -> None:
    body = members(
        {
            "messages": [{**USER, "name": "Ann", "cache_control": {}}],
            "temperature": 0.5, "seed": 1, "stop": ["x"], "logprobs": True, "top_logprobs": 1, "stream": True,
            "tool_choice": "none", "user": "u", "priority": 0.5, "cache_salt": "s", "max_tokens": 3,
            "conversation_params": {"conversation_id": "c"},
        }
    )  # fmt: skip
    check_members(body, chat=True)
    assert read_chat(body, strict_tools=True).messages == [USER]
