"""Sampling fields whose values mean something else in other engines."""

import msgspec

from proxy.wire.fields.draft import Draft
from proxy.wire.fields.rule import KeepUnless, Rename, Rule, Translate, boolean, same

_PRIORITY = (
    "must be a fraction between 0 and 1, higher first; whole numbers mean lower first in other engines"
)


def _truncate(draft: Draft, name: str) -> None:
    value = draft.value(name)
    if isinstance(value, int) and not isinstance(value, bool) and value < 1:
        draft.refuse(name, "must be at least 1")


def _priority(draft: Draft, name: str) -> None:
    value = draft.value(name)
    if isinstance(value, float) and 0.0 <= value <= 1.0:
        return
    if not same(value, (0,)):
        draft.refuse(name, _PRIORITY)
    draft.drop(name)


def _completions_logprobs(draft: Draft, name: str) -> None:
    value = draft.value(name)
    if value is False:
        draft.drop(name)
        return
    if "echo" in draft.members and boolean(draft, "echo"):
        draft.refuse(name, "cannot be combined with echo: the workers give none for the prompt")
    if same(value, (0,)):
        draft.members[name] = msgspec.Raw(b"1")


def _top_logprobs(draft: Draft, name: str) -> None:
    if "logprobs" in draft.members and draft.value("logprobs") is True:
        return
    if not same(draft.value(name), (0,)):
        draft.refuse(name, "needs logprobs: true")
    draft.drop(name)


def _no_stop_trim(draft: Draft, name: str) -> None:
    if boolean(draft, name):
        draft.take(name)
        draft.put("include_stop_str_in_output", b"true", source=name)
    else:
        draft.drop(name)


def _input_ids(draft: Draft, name: str) -> None:
    if "prompt_token_ids" in draft.route:  # else it stays and is refused under its own name
        value = draft.take(name)
        draft.members.setdefault("prompt_token_ids", value)


SAMPLING = (
    Rule("top_k", KeepUnless((-1,)), "-1 is off elsewhere; the workers' default is off"),
    Rule("thinking_token_budget", KeepUnless((-1,)), "-1 is unlimited elsewhere"),
    Rule("truncate_prompt_tokens", Translate(_truncate, "refused when below 1, else kept")),
    Rule(
        "priority",
        Translate(_priority, "0 is dropped, fractions are kept, other whole numbers are refused"),
        "vLLM's priorities are whole numbers, lower first; the workers' are fractions, higher first",
    ),
    Rule(
        "logprobs",
        Translate(_completions_logprobs, "0 becomes 1; refused together with echo"),
        "0 asks for the chosen token only, but switches them off on the workers",
        route="completions",
        late=True,
    ),
    Rule(
        "top_logprobs",
        Translate(_top_logprobs, "without logprobs: true 0 is dropped and others are refused"),
        route="chat",
        late=True,
    ),
    Rule("no_stop_trim", Translate(_no_stop_trim, "true becomes include_stop_str_in_output: true")),
    Rule("extra_key", Rename("cache_salt"), "SGLang's name", route="chat"),
    Rule("input_ids", Translate(_input_ids, "renamed to prompt_token_ids"), "SGLang's name"),
)
