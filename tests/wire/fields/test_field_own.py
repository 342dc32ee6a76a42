import json
from typing import Any

import pytest

from proxy.wire.errors import InvalidField
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.fields.own import FieldRule
from proxy.wire.fields.policy import FieldPolicy, Options
from proxy.wire.members import split_object
from proxy.wire.versions import WorkerVersion

DIALECTS = ["trtllm", "nemo_rl", "passthrough"]


def apply(
    body: dict[str, Any], *rules: FieldRule, chat: bool = True, dialect: Any = "trtllm"
) -> tuple[dict[str, Any], tuple[str, ...]]:
    options = Options(dialect=dialect, rules=rules)
    policy = FieldPolicy(ACCEPTED[WorkerVersion.JUL], chat=chat, options=options)
    applied = policy.apply(split_object(json.dumps(body).encode()))
    return {name: json.loads(bytes(value)) for name, value in applied.members.items()}, applied.dropped


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("chat", [True, False])
class TestActions:
    def test_drop(self, dialect: str, chat: bool) -> None:
        rule = FieldRule("seed", "drop")
        assert apply({"seed": 1, "top_p": 1}, rule, chat=chat, dialect=dialect) == ({"top_p": 1}, ("seed",))
        assert apply({"top_p": 1}, rule, chat=chat, dialect=dialect) == ({"top_p": 1}, ())

    def test_rename(self, dialect: str, chat: bool) -> None:
        rule = FieldRule("my_seed", "rename", to="seed")
        assert apply({"my_seed": 1}, rule, chat=chat, dialect=dialect) == ({"seed": 1}, ())
        assert apply({"my_seed": 1, "seed": 1}, rule, chat=chat, dialect=dialect) == ({"seed": 1}, ())
        with pytest.raises(InvalidField) as error:
            apply({"my_seed": 1, "seed": 2}, rule, chat=chat, dialect=dialect)
        assert (error.value.param, error.value.code) == ("my_seed", "conflicting_fields")

    def test_default(self, dialect: str, chat: bool) -> None:
        rule = FieldRule("top_p", "default", value=0.9)
        assert apply({}, rule, chat=chat, dialect=dialect) == ({"top_p": 0.9}, ())
        assert apply({"top_p": None}, rule, chat=chat, dialect=dialect) == ({"top_p": 0.9}, ())
        assert apply({"top_p": 0.5}, rule, chat=chat, dialect=dialect) == ({"top_p": 0.5}, ())

    def test_map(self, dialect: str, chat: bool) -> None:
        rule = FieldRule("top_p", "map", values={"0": 1, "1.0": None, "x": "y"})
        assert apply({"top_p": 0}, rule, chat=chat, dialect=dialect) == ({"top_p": 1}, ())
        assert apply({"top_p": 1.0}, rule, chat=chat, dialect=dialect) == ({}, ("top_p",))
        assert apply({"top_p": "x"}, rule, chat=chat, dialect=dialect) == ({"top_p": "y"}, ())
        assert apply({"top_p": 0.5}, rule, chat=chat, dialect=dialect) == ({"top_p": 0.5}, ())

    def test_refuse(self, dialect: str, chat: bool) -> None:
        rule = FieldRule("seed", "refuse", message="is fixed by the operator")
        with pytest.raises(InvalidField) as error:
            apply({"seed": 1}, rule, chat=chat, dialect=dialect)
        assert (error.value.param, error.value.message) == ("seed", "seed is fixed by the operator")
        if dialect == "trtllm":
            assert apply({"seed": None}, rule, chat=chat) == ({}, ())
        with pytest.raises(InvalidField, match="is not served here"):
            apply({"seed": 1}, FieldRule("seed", "refuse"), chat=chat, dialect=dialect)

    def test_only_on_one_route(self, dialect: str, chat: bool) -> None:
        rule = FieldRule("seed", "drop", route="completions" if chat else "chat")
        assert apply({"seed": 1}, rule, chat=chat, dialect=dialect) == ({"seed": 1}, ())


def test_they_come_before_the_tables() -> None:
    rules = (
        FieldRule("reasoning_effort", "map", values={"minimal": "low"}),
        FieldRule("allowed_token_ids", "drop"),
        FieldRule("verbose", "rename", to="store"),
        FieldRule("guided_regex", "default", value="a"),
    )
    body = {"reasoning_effort": "minimal", "allowed_token_ids": [1], "verbose": True}
    assert apply(body, *rules) == (
        {"reasoning_effort": "low", "response_format": {"type": "regex", "regex": "a"}},
        ("allowed_token_ids", "store"),
    )


def test_they_apply_in_their_order() -> None:
    rules = (
        FieldRule("a", "rename", to="b"),
        FieldRule("b", "rename", to="seed"),
        FieldRule("seed", "map", values={"1": 2}),
    )
    assert apply({"a": 1}, *rules) == ({"seed": 2}, ())


def test_the_hand_off_cannot_be_reached() -> None:
    for name in ("disaggregated_params", "prompt_token_ids_b64", "injected_chat_template_kwargs"):
        with pytest.raises(ValueError, match="cannot have rules"):
            FieldRule("x", "rename", to=name)
        with pytest.raises(ValueError, match="cannot have rules"):
            FieldRule(name, "default", value={})


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (FieldRule("a", "drop"), "dropped"),
        (FieldRule("a", "rename", to="b"), "renamed to b"),
        (FieldRule("a", "default", value=[1]), "set to [1] where absent"),
        (FieldRule("a", "map", values={"x": None}), 'values replaced: {"x":null}'),
        (FieldRule("a", "refuse"), "refused: not served here"),
    ],
)
def test_in_words(rule: FieldRule, text: str) -> None:
    assert rule.text == text
