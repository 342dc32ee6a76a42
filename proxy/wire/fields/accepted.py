"""What workers accept on the wire, per route and version.

Workers validate with `extra="forbid"`, nested models included: one unknown member fails the whole request with a
400, and the set changes with every release. `ACCEPTED` is the built-in table; `proxy.wire.fields.schema` reads the
same from a worker's own OpenAPI document, which is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import msgspec

from proxy.wire.versions import WorkerVersion

_SAMPLING = frozenset(
    {
        "best_of", "early_stopping", "frequency_penalty", "ignore_eos", "include_stop_str_in_output",
        "length_penalty", "logit_bias", "lora_request", "min_p", "min_tokens", "n", "presence_penalty",
        "prompt_ignore_length", "repetition_penalty", "response_format", "seed", "skip_special_tokens",
        "spaces_between_special_tokens", "stop", "stop_token_ids", "temperature", "thinking_token_budget",
        "top_k", "top_p", "top_p_min", "truncate_prompt_tokens", "use_beam_search", "user",
    }
)  # fmt: skip

_COMMON = _SAMPLING | {
    "add_special_tokens",
    "echo",
    "logprobs",
    "max_tokens",
    "model",
    "stream",
    "stream_options",
}

_COMPLETIONS = _COMMON | {"detokenize", "prompt", "return_context_logits", "suffix"}

_CHAT = _COMMON | {
    "add_generation_prompt", "agent_hierarchy", "cache_salt", "chat_template", "chat_template_kwargs", "documents",
    "max_completion_tokens", "media_io_kwargs", "messages", "mm_processor_kwargs", "reasoning_effort",
    "tool_choice", "tools", "top_logprobs",
}  # fmt: skip

CHAT: dict[WorkerVersion, frozenset[str]] = {
    WorkerVersion.OLD: _CHAT,
    WorkerVersion.JUL: _CHAT | {"conversation_params"},
    WorkerVersion.NEW: _CHAT | {"conversation_params", "parallel_tool_calls", "priority", "thinking"},
}

COMPLETIONS: dict[WorkerVersion, frozenset[str]] = {
    WorkerVersion.OLD: _COMPLETIONS,
    WorkerVersion.JUL: _COMPLETIONS | {"conversation_params"},
    WorkerVersion.NEW: _COMPLETIONS | {"conversation_params", "priority"},
}

_PARAMETERS = frozenset(
    {
        "request_type", "first_gen_tokens", "first_gen_log_probs", "first_gen_logits", "ctx_request_id",
        "encoded_opaque_state", "draft_tokens", "disagg_request_id", "ctx_dp_rank", "ctx_info_endpoint",
    }
)  # fmt: skip
_PARAMETERS_JUL = _PARAMETERS | {"schedule_style", "ctx_usage", "return_prompt_token_ids_b64"}

# `conversation_id` was among the parameters of some old versions and of 1.3.0rc24, which takes
# `conversation_params` too, and is refused by later ones: a table cannot know, so none lists it.
PARAMETERS: dict[WorkerVersion, frozenset[str]] = {
    WorkerVersion.OLD: _PARAMETERS,
    WorkerVersion.JUL: _PARAMETERS_JUL,
    WorkerVersion.NEW: _PARAMETERS_JUL | {"resolved_thinking"},
}
"""Members of `disaggregated_params`."""

_FUNCTION = frozenset({"name", "description", "parameters"})

INTERNAL = frozenset({"disaggregated_params", "prompt_token_ids_b64", "injected_chat_template_kwargs"})
"""Between proxy and workers only. A client must never set them: `disaggregated_params` could point a generation
worker at any endpoint."""

CLIENT_TOKEN_IDS = frozenset({"prompt_token_ids", "input_ids"})
"""The prompt as token ids on the chat route: refused unless the operator trusts the clients with it."""


class Accepted(msgspec.Struct, frozen=True):
    """What one worker accepts, or several have in common.

    Attributes:
        chat, completions: top-level members of the two routes that clients may set.
        parameters: members of `disaggregated_params`.
        base64_ids: `prompt_token_ids_b64` on the chat route (TRT#15698).
        stream_options, response_format, tool, function, thinking: members of the nested models.
        efforts: values of `reasoning_effort`; None when unknown.
        exact: from the worker's own schema, so that what is not listed is refused.
        refused: parameters that the worker has refused in spite of all.
    """

    chat: frozenset[str]
    completions: frozenset[str]
    parameters: frozenset[str]
    base64_ids: bool
    function: frozenset[str]
    stream_options: frozenset[str] = frozenset({"include_usage", "continuous_usage_stats"})
    response_format: frozenset[str] = frozenset({"type", "schema", "json_schema", "regex", "ebnf", "format"})
    tool: frozenset[str] = frozenset({"type", "function"})
    thinking: frozenset[str] = frozenset({"type", "keep", "effort"})
    efforts: frozenset[str] | None = None
    exact: bool = False
    refused: frozenset[str] = frozenset()

    @property
    def reasoning_in_messages(self) -> bool:
        """Whether messages may carry `reasoning_content` and `reasoning`; versions before JUL refuse them."""
        return "conversation_params" in self.chat

    def takes_parameter(self, name: str) -> bool:
        """Whether a member that a context worker returned in `disaggregated_params` may be sent."""
        return name in self.parameters or not (self.exact or name in self.refused)

    def takes_parameters(self, names: Set[str]) -> bool:
        """Whether all of them may be sent."""
        unknown = names - self.parameters
        return not unknown or not (self.exact or unknown & self.refused)

    def of_route(self, *, chat: bool) -> frozenset[str]:
        """The top-level members of a route."""
        return self.chat if chat else self.completions

    def without(self, path: tuple[str, ...], *, chat: bool) -> Accepted:
        """The same less a member that the worker turned out to refuse.

        Args:
            path: of the member, such as `("disaggregated_params", "ctx_usage")`.
            chat: the route on which it was refused.
        """
        name = path[-1]
        if path[:-1] == ("disaggregated_params",):
            return msgspec.structs.replace(
                self, parameters=self.parameters - {name}, refused=self.refused | {name}
            )
        if path == ("prompt_token_ids_b64",):
            return msgspec.structs.replace(self, base64_ids=False)
        if len(path) == 1:
            route = "chat" if chat else "completions"
            return msgspec.structs.replace(self, **{route: self.of_route(chat=chat) - {name}})
        return self


ACCEPTED: dict[WorkerVersion, Accepted] = {
    version: Accepted(
        chat=CHAT[version],
        completions=COMPLETIONS[version],
        parameters=PARAMETERS[version],
        base64_ids=version is not WorkerVersion.OLD,
        function=_FUNCTION if version is WorkerVersion.OLD else _FUNCTION | {"strict"},
    )
    for version in WorkerVersion
}

EVER_ACCEPTED: frozenset[str] = (
    _CHAT | _COMPLETIONS | CHAT[WorkerVersion.NEW] | COMPLETIONS[WorkerVersion.NEW]
)
"""Members that some version accepts on some route: they mean something even where they are not accepted."""

WITHOUT_EFFECT = frozenset(
    {"agent_hierarchy", "conversation_params", "parallel_tool_calls", "priority", "user"}
)
"""Members that change no token (TRT#19459 on `parallel_tool_calls`: accepted, not enforced), so that they can be left
out where a version does not know them."""

_SETS = (
    "chat",
    "completions",
    "parameters",
    "function",
    "stream_options",
    "response_format",
    "tool",
    "thinking",
)


def common(all_accepted: Iterable[Accepted]) -> Accepted:
    """What all of them accept; at least one is needed."""
    first, *others = all_accepted
    if all(each == first for each in others):
        return first
    every = (first, *others)
    efforts = [each.efforts for each in every if each.efforts is not None]
    return Accepted(
        **{name: frozenset.intersection(*(getattr(each, name) for each in every)) for name in _SETS},
        base64_ids=all(each.base64_ids for each in every),
        efforts=frozenset.intersection(*efforts) if efforts else None,
        exact=all(each.exact for each in every),
        refused=frozenset().union(*(each.refused for each in every)),
    )
