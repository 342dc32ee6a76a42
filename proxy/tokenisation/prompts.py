"""What a worker makes of a request before it tokenises, done once more here: the conversation, the tools, the options.

Workers hand their chat template only some members of each message, in a form of their own: content as one text, the
arguments of tool calls parsed, tools with all fields of their models in the models' order, absent ones as null (the
order of the client's keys would change the prompt). A request with anything that is not surely known to render the same
here is `NotReproducible`, and goes to the worker as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from proxy.tokenisation.template import RESERVED
from proxy.tokenisation.tokenizer import PromptTokenizer
from proxy.wire.members import JSONBytes, Members, first_byte

_QUOTE = b'"'[0]


class NotReproducible(Exception):
    """The prompt of this request is to be made by the worker; the argument says why, in a word."""


_NO_PART = frozenset(
    {
        "best_of", "conversation_params", "early_stopping", "frequency_penalty", "ignore_eos",
        "include_stop_str_in_output", "length_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens",
        "min_p", "min_tokens", "model", "n", "presence_penalty", "priority", "repetition_penalty", "response_format",
        "seed", "skip_special_tokens", "spaces_between_special_tokens", "stop", "stop_token_ids", "stream",
        "stream_options", "temperature", "top_k", "top_p", "top_p_min", "use_beam_search", "user",
    }
)  # fmt: skip

OF_CHAT = _NO_PART | {
    "add_generation_prompt", "agent_hierarchy", "cache_salt", "chat_template_kwargs", "documents", "messages",
    "parallel_tool_calls", "tool_choice", "tools", "top_logprobs",
}  # fmt: skip
"""The members of a chat request with which its prompt is known. Others may change it, today or in the next version."""

OF_COMPLETIONS = _NO_PART | {"detokenize", "prompt", "return_context_logits"}
"""The same for completions."""


class _Part(msgspec.Struct):
    type: Literal["text"]
    text: str


class _CalledFunction(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class _ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    function: _CalledFunction
    type: Literal["function"]


class _Message(msgspec.Struct):
    role: str
    content: str | list[str | _Part] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    tools: None = None


class _Function(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    function: _Function
    type: Literal["function"] = "function"


class Chat(msgspec.Struct, frozen=True):
    """A conversation as the template sees it; see `ChatTemplate.render`."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    options: Mapping[str, Any] | None = None

    def render(self, tokenizer: PromptTokenizer) -> str:
        """The prompt's text.

        Raises:
            NotReproducible: there is no template, it does not read an option, or it refuses the conversation.
        """
        template = tokenizer.template(with_tools=self.tools is not None)
        if template is None:
            raise NotReproducible("template")
        options = self.options or {}
        if not template.names.issuperset(options) or not RESERVED.isdisjoint(options):
            raise NotReproducible("options")
        try:
            return template.render(
                self.messages,
                tools=self.tools,
                documents=self.documents,
                add_generation_prompt=self.add_generation_prompt,
                options=options,
            )
        except (
            Exception
        ) as error:  # templates are programs and fail in any way; the worker tells the client how
            raise NotReproducible("template") from error


def check_members(members: Members, *, chat: bool) -> None:
    """What can be seen at once.

    Raises:
        NotReproducible: a member may change the prompt, or it is not a text.
    """
    if not (OF_CHAT if chat else OF_COMPLETIONS).issuperset(members):
        raise NotReproducible("member")
    if not chat and first_byte(members["prompt"]) != _QUOTE:
        raise NotReproducible("prompt")


def read_chat(members: Members, *, strict_tools: bool) -> Chat:
    """What a chat request is made of.

    Args:
        members: after the field policy.
        strict_tools: the workers' model of a function has the field `strict` (since July 2026).

    Raises:
        NotReproducible: see the module's docstring.
    """
    choice = _decoded(members.get("tool_choice", b"null"), Any)
    if choice not in (None, "none", "auto"):
        raise NotReproducible("tool_choice")  # the worker may put words into the model's mouth
    tools = _decoded(members.get("tools", b"null"), list[_Tool] | None)
    return Chat(
        messages=[_rendered(message) for message in _decoded(members["messages"], list[_Message])],
        tools=None if tools is None else [_dumped(tool, strict=strict_tools) for tool in tools],
        documents=_decoded(members.get("documents", b"null"), list[dict[str, Any]] | None),
        add_generation_prompt=_decoded(members.get("add_generation_prompt", b"true"), bool),
        options=_decoded(members.get("chat_template_kwargs", b"null"), dict[str, Any] | None),
    )


def read_text(members: Members) -> str:
    """The text of a completions request.

    Raises:
        NotReproducible: it is not valid text.
    """
    text: str = _decoded(members["prompt"], str)
    return text


def _decoded(value: JSONBytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        raise NotReproducible("form") from None


def _rendered(message: _Message) -> dict[str, Any]:
    content = message.content
    if isinstance(content, list):
        texts = [part if isinstance(part, str) else part.text for part in content]
        content = "\n".join(text for text in texts if text)
    # Never null: templates that look for a missing content find an empty one.
    rendered: dict[str, Any] = {"role": message.role, "content": content or ""}
    if message.role == "assistant":
        reasoning = message.reasoning if message.reasoning is not None else message.reasoning_content
        if reasoning is not None:
            rendered["reasoning_content"] = reasoning
        if message.tool_calls is not None:
            rendered["tool_calls"] = [_parsed(call) for call in message.tool_calls]
    elif message.role == "tool" and message.tool_call_id is not None:
        rendered["tool_call_id"] = message.tool_call_id
    return rendered


def _parsed(call: _ToolCall) -> dict[str, Any]:
    """A tool call in the order of its model in OpenAI's library, which the workers use, with parsed arguments."""
    arguments = _decoded(call.function.arguments.encode(), dict[str, Any])
    return {
        "id": call.id,
        "function": {"arguments": arguments, "name": call.function.name},
        "type": call.type,
    }


def _dumped(tool: _Tool, *, strict: bool) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.function.name,
        "description": tool.function.description,
        "parameters": tool.function.parameters,
    }
    if strict:
        function["strict"] = tool.function.strict
    return {"type": tool.type, "function": function}
