"""All rules of the dialect `trtllm`, group by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from proxy.wire.fields.accepted import CLIENT_TOKEN_IDS, EVER_ACCEPTED
from proxy.wire.fields.budget import BUDGET
from proxy.wire.fields.engines import HAND_OFF, PLACEMENT
from proxy.wire.fields.harmless import ANSWER_DETAILS, BOOK_KEEPING, CACHES, IDS_OF_WORKERS
from proxy.wire.fields.packed import PACKED
from proxy.wire.fields.refused import REFUSED
from proxy.wire.fields.response_format import RESPONSE_FORMAT
from proxy.wire.fields.rule import Rule
from proxy.wire.fields.sampling import SAMPLING
from proxy.wire.fields.stream_options import STREAM_OPTIONS
from proxy.wire.fields.thinking import THINKING
from proxy.wire.fields.tools import TOOLS

Dialect = Literal["trtllm", "nemo_rl", "passthrough"]
"""What the workers are: `trtllm-serve` (strict), NeMo-RL's adapter (takes anything), or something else again."""

_IDS = "token ids, with the dialects nemo_rl and passthrough"

GROUPS: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("hand-off", HAND_OFF),
    ("packed", PACKED),
    ("token budget", BUDGET),
    ("sampling", SAMPLING),
    ("response format", RESPONSE_FORMAT),
    ("tools", TOOLS),
    ("thinking", THINKING),
    ("stream", STREAM_OPTIONS),
    ("bookkeeping", BOOK_KEEPING),
    ("caches", CACHES),
    ("details of the answer", ANSWER_DETAILS),
    (_IDS, IDS_OF_WORKERS),
    ("placement", PLACEMENT),
    ("refused", REFUSED),
)

GROUPS_OF_DIALECT: Mapping[Dialect, frozenset[str]] = {
    "trtllm": frozenset(title for title, _ in GROUPS) - {_IDS},
    # The adapter ignores what it does not know: that must not happen to what changes the meaning.
    "nemo_rl": frozenset({"hand-off", _IDS, "refused"}),
    "passthrough": frozenset({"hand-off", _IDS}),
}

ANYWHERE = EVER_ACCEPTED | CLIENT_TOKEN_IDS | {rule.field for _, rules in GROUPS for rule in rules}
"""Every field that means something on some route to some version."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (False,),
    "detokenize": (True,),
    "documents": ([],),
    "functions": ([],),
    "chat_template_kwargs": ({},),
    "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "return_context_logits": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
}
"""Values that ask for nothing, so that a route or version that does not know the field does not need it."""


def rules_of(dialect: Dialect, *, chat: bool) -> dict[str, Rule]:
    """The rules of a dialect and route by field; that of `messages` is `proxy.wire.fields.messages`'s."""
    groups = GROUPS_OF_DIALECT[dialect]
    other = "completions" if chat else "chat"
    return {
        rule.field: rule
        for title, rules in GROUPS
        if title in groups
        for rule in rules
        if rule.route != other
    }
