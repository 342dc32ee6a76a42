"""The token budget, which has many names. Workers take `max_tokens` in every version."""

from proxy.wire.fields.draft import Draft
from proxy.wire.fields.rule import Rule, Translate


def _max_completion_tokens(draft: Draft, name: str) -> None:
    value = draft.take(name)
    # Workers have one field with two names and refuse both at once; the newer name wins, as in OpenAI's API.
    draft.members.pop("max_tokens", None)
    spelling = name if "max_tokens" not in draft.route and name in draft.route else "max_tokens"
    draft.members[spelling] = value


def _other_name(draft: Draft, name: str) -> None:
    value = draft.take(name)
    target = "max_completion_tokens" if "max_completion_tokens" in draft.members else "max_tokens"
    draft.put(target, value, source=name)


_OTHER_NAME = Translate(_other_name, "renamed to max_tokens; refused when it contradicts another budget")

BUDGET = (
    Rule(
        "max_completion_tokens",
        Translate(_max_completion_tokens, "renamed to max_tokens, which it replaces"),
        "the workers refuse both names together, completions know only max_tokens",
    ),
    Rule("max_new_tokens", _OTHER_NAME, "SGLang's name"),
    Rule("max_output_tokens", _OTHER_NAME, "the name of OpenAI's responses"),
)
