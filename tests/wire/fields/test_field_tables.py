"""Each row of the tables, on both routes and for all versions; what is sent must please a strict worker."""

import json
from typing import Any

import pytest
from field_cases import CASES, Case, Left, Refused

from proxy.sim.profiles import PROFILES
from proxy.sim.validation import BodyError, Validator
from proxy.wire.errors import InvalidField
from proxy.wire.fields.accepted import ACCEPTED, CLIENT_TOKEN_IDS, INTERNAL
from proxy.wire.fields.engines import HAND_OFF_NAMES
from proxy.wire.fields.policy import FieldPolicy, Options
from proxy.wire.fields.refused import REFUSED
from proxy.wire.fields.rule import DropIf
from proxy.wire.fields.tables import GROUPS
from proxy.wire.members import split_object
from proxy.wire.versions import WorkerVersion

BASES = {
    True: {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    False: {"model": "m", "prompt": "x"},
}


def apply(policy: FieldPolicy, body: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    applied = policy.apply(split_object(json.dumps(body).encode()))
    return {name: json.loads(bytes(value)) for name, value in applied.members.items()}, applied.dropped


def shown(case: Case) -> str:
    return json.dumps(case.fields)[:60]


@pytest.mark.parametrize("version", list(WorkerVersion))
@pytest.mark.parametrize("chat", [True, False], ids=["chat", "completions"])
@pytest.mark.parametrize("case", CASES, ids=shown)
def test_row(case: Case, chat: bool, version: WorkerVersion) -> None:
    policy = FieldPolicy(ACCEPTED[version], chat=chat)
    outcome = case.chat if chat else case.completions
    body = {**BASES[chat], **case.fields}
    if isinstance(outcome, Refused):
        with pytest.raises(InvalidField) as error:
            apply(policy, body)
        assert error.value.param == outcome.param
        assert outcome.param in str(error.value)
        return
    sent, dropped = apply(policy, body)
    assert sent == {**BASES[chat], **outcome.members}
    assert set(dropped) == set(outcome.dropped)
    assert len(dropped) == len(set(dropped))
    worker = Validator(PROFILES[version])
    if isinstance(outcome, Left):
        with pytest.raises(BodyError):
            worker.check(sent, chat=chat)
    else:
        worker.check(sent, chat=chat)


def test_every_rule_has_a_row() -> None:
    named = {name for case in CASES for name in case.fields}
    assert {rule.field for _, rules in GROUPS for rule in rules} - named == set()


@pytest.mark.parametrize("unknown", ["drop", "reject", "pass"])
@pytest.mark.parametrize("dialect", ["trtllm", "nemo_rl", "passthrough"])
@pytest.mark.parametrize("chat", [True, False], ids=["chat", "completions"])
@pytest.mark.parametrize("name", sorted(HAND_OFF_NAMES))
def test_hand_off_members_never_pass(name: str, chat: bool, dialect: Any, unknown: Any) -> None:
    options = Options(dialect=dialect, unknown=unknown, accept_prompt_token_ids=True)
    policy = FieldPolicy(ACCEPTED[WorkerVersion.NEW], chat=chat, options=options)
    for body in ({name: {"request_type": "generation_only"}}, {name: "x"}):
        assert apply(policy, {**BASES[chat], **body}) == (BASES[chat], (name,))


@pytest.mark.parametrize("name", sorted(INTERNAL))
def test_hand_off_members_never_pass_in_a_packet(name: str) -> None:
    policy = FieldPolicy(ACCEPTED[WorkerVersion.NEW], chat=True, options=Options(unknown="pass"))
    assert apply(policy, {**BASES[True], "extra_body": {name: {"a": 1}}}) == (BASES[True], (name,))


class TestUnknown:
    def policy(self, unknown: Any, chat: bool = True) -> FieldPolicy:
        return FieldPolicy(ACCEPTED[WorkerVersion.NEW], chat=chat, options=Options(unknown=unknown))

    @pytest.mark.parametrize("chat", [True, False])
    def test_reject(self, chat: bool) -> None:
        policy = self.policy("reject", chat)
        with pytest.raises(InvalidField) as error:
            apply(policy, {**BASES[chat], "unheard_of": 1})
        assert (error.value.param, error.value.code) == ("unheard_of", "unknown_field")
        # What is known to be harmless is dropped all the same.
        assert apply(policy, {**BASES[chat], "store": True, "unheard_of": None})[1] == ("store",)

    @pytest.mark.parametrize("chat", [True, False])
    def test_pass(self, chat: bool) -> None:
        body = {**BASES[chat], "unheard_of": {"a": 1}}
        assert apply(self.policy("pass", chat), {**body, "store": True}) == (body, ("store",))

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"stream": True, "stream_options": {"unheard_of": 1}}, "stream_options.unheard_of"),
            ({"tools": [{"function": {"name": "f"}, "unheard_of": 1}]}, "tools[0].unheard_of"),
            ({"tools": [{"function": {"name": "f", "unheard_of": 1}}]}, "tools[0].function.unheard_of"),
            ({"verbosity": "low"}, "verbosity"),
        ],
    )
    def test_nested_ones_are_rejected_and_passed_too(self, fields: dict[str, Any], param: str) -> None:
        body = {**BASES[True], **fields}
        with pytest.raises(InvalidField) as error:
            apply(self.policy("reject"), body)
        assert error.value.param == param
        if param != "verbosity":
            assert apply(self.policy("pass"), body) == (body, ())

    @pytest.mark.parametrize("unknown", ["drop", "reject", "pass"])
    def test_meaning_is_never_dropped(self, unknown: Any) -> None:
        for name in ("allowed_token_ids", "audio", "prompt_logprobs"):
            with pytest.raises(InvalidField):
                apply(self.policy(unknown), {**BASES[True], name: [1]})


GYM = {
    "return_tokens_as_token_ids": True,
    "return_token_ids": True,
    "top_k": -1,
    "top_p": 1.0,
    "temperature": None,
    "metadata": {"a": "b"},
    "required_prefix_token_ids": [1],
    "unheard_of": 1,
    "max_completion_tokens": 4,
    "stream_options": {"a": 1},
}
BUNDLE = {
    "role": "assistant", "content": "x", "prompt_token_ids": [1], "generation_token_ids": [2],
    "generation_log_probs": [-0.5],
}  # fmt: skip


class TestDialects:
    def policy(self, dialect: Any, chat: bool = True, accept: bool = False) -> FieldPolicy:
        options = Options(dialect=dialect, accept_prompt_token_ids=accept)
        return FieldPolicy(ACCEPTED[WorkerVersion.JUL], chat=chat, options=options)

    @pytest.mark.parametrize("dialect", ["nemo_rl", "passthrough"])
    @pytest.mark.parametrize("chat", [True, False])
    def test_nothing_is_changed(self, dialect: Any, chat: bool) -> None:
        body = {**BASES[chat], **GYM}
        if chat:
            body["messages"] = [
                *body["messages"],
                BUNDLE,
                {"role": "user", "name": None, "content": "y"},
            ]
        assert apply(self.policy(dialect, chat), body) == (body, ())

    @pytest.mark.parametrize("chat", [True, False])
    @pytest.mark.parametrize("rule", REFUSED, ids=lambda rule: rule.field)
    def test_what_the_adapter_would_ignore_is_refused(self, rule: Any, chat: bool) -> None:
        value = {"meaning": 1}
        with pytest.raises(InvalidField):
            apply(self.policy("nemo_rl", chat), {**BASES[chat], rule.field: value})
        body = {**BASES[chat], rule.field: value}
        assert apply(self.policy("passthrough", chat), body) == (body, ())
        if isinstance(rule.effect, DropIf):
            harmless = {**BASES[chat], rule.field: rule.effect.harmless[0]}
            assert apply(self.policy("nemo_rl", chat), harmless) == (BASES[chat], (rule.field,))

    @pytest.mark.parametrize("dialect", ["nemo_rl", "passthrough"])
    @pytest.mark.parametrize("name", sorted(CLIENT_TOKEN_IDS))
    def test_token_ids_need_trust_everywhere(self, dialect: Any, name: str) -> None:
        body = {**BASES[True], name: [1, 2]}
        with pytest.raises(InvalidField):
            apply(self.policy(dialect), body)
        assert apply(self.policy(dialect, accept=True), body) == (body, ())
