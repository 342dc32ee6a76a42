import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.sim.profiles import PROFILES
from proxy.sim.validation import Validator
from proxy.wire.errors import InvalidField
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.fields.messages import BUNDLE, UNKNOWN_PARTS
from proxy.wire.fields.policy import FieldPolicy, Options
from proxy.wire.members import split_object
from proxy.wire.versions import WorkerVersion

USER = {"role": "user", "content": "x"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def sent(
    messages: Any, version: WorkerVersion = WorkerVersion.JUL, options: Options | None = None
) -> tuple[Any, tuple[str, ...]]:
    policy = FieldPolicy(ACCEPTED[version], chat=True, options=options)
    body = json.dumps({"model": "m", "messages": messages}).encode()
    applied = policy.apply(split_object(body))
    return json.loads(bytes(applied.members["messages"])), applied.dropped


def refused(messages: Any) -> InvalidField:
    with pytest.raises(InvalidField) as error:
        sent(messages)
    return error.value


@pytest.mark.parametrize(
    "message",
    [
        USER,
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}, {"type": "text"}],
        },
        {"role": "user", "content": [{"text": "no type"}]},
        {"role": "user", "name": "n", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": None, "refusal": None, "annotations": []},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": "", "tool_calls": [CALL, CALL], "reasoning_content": None},
        {"role": "assistant", "content": "x", "reasoning_content": "r", "reasoning": "r"},
        {"role": "assistant", "content": "x", "function_call": None, "prompt_token_ids": None},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "system", "content": "s", "tools": [{"type": "function", "function": {"name": "f"}}]},
        {"role": "developer", "content": "s"},
        {"role": "response_1", "content": "s"},
        {"role": "user", "content": 'a "name": null and a "tool_calls": [{"index": 0}] in a text'},
        {"role": "user", "content": 1},
        {"content": "no role"},
        {"role": 1, "content": "x"},
        "no object",
    ],
)
def test_left_as_it_is(message: Any) -> None:
    source = json.dumps([message, USER], indent=1).encode()
    policy = FieldPolicy(ACCEPTED[WorkerVersion.JUL], chat=True)
    members = split_object(b'{"model":"m","messages":' + source + b"}")
    applied = policy.apply(members)
    assert bytes(applied.members["messages"]) == source, "not a byte is changed"
    assert applied.dropped == ()


def test_a_function_call_of_null_goes() -> None:
    message = {"role": "assistant", "content": "x", "function_call": None, "name": None}
    assert sent([message]) == ([{"role": "assistant", "content": "x"}], ())


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system"])
def test_a_name_of_null_goes(role: str) -> None:
    message = {"role": role, "content": "x", "name": None, "tool_call_id": "c"}
    expected = {name: value for name, value in message.items() if name != "name"}
    assert sent([USER, message]) == ([USER, expected], ())


@pytest.mark.parametrize("version", list(WorkerVersion))
def test_bundles_go(version: WorkerVersion) -> None:
    message = {"role": "assistant", "content": "x", **{name: [1, 2] for name in BUNDLE}}
    kept, dropped = sent([USER, message, USER, message], version)
    assert kept == [USER, {"role": "assistant", "content": "x"}] * 2
    assert dropped == tuple(f"messages.{name}" for name in BUNDLE)


@pytest.mark.parametrize(
    ("version", "stays"), [(WorkerVersion.OLD, False), (WorkerVersion.JUL, True), (WorkerVersion.NEW, True)]
)
def test_reasoning_goes_for_old_workers(version: WorkerVersion, stays: bool) -> None:
    message = {"role": "assistant", "content": "x", "reasoning_content": "r", "reasoning": "r"}
    kept, dropped = sent([message], version)
    assert kept == [message] if stays else [{"role": "assistant", "content": "x"}]
    assert dropped == (() if stays else ("messages.reasoning_content", "messages.reasoning"))


class TestToolCalls:
    def call(self, *calls: Any) -> tuple[Any, tuple[str, ...]]:
        kept, dropped = sent([USER, {"role": "assistant", "content": None, "tool_calls": list(calls)}])
        assert kept[0] == USER
        Validator(PROFILES["old"]).check({"model": "m", "messages": kept}, chat=True)
        return kept[1]["tool_calls"], dropped

    def test_keys_that_are_not_modelled(self) -> None:
        odd = {**CALL, "index": 0, "extra_content": {"google": {"thought_signature": "x"}}}
        odd["function"] = {**CALL["function"], "strict": None}  # type: ignore[dict-item]
        assert self.call(CALL, odd) == (
            [CALL, CALL],
            (
                "messages.tool_calls.index",
                "messages.tool_calls.extra_content",
                "messages.tool_calls.function.strict",
            ),
        )

    def test_a_missing_type(self) -> None:
        odd = {name: value for name, value in CALL.items() if name != "type"}
        assert self.call(odd, {**odd, "type": None}) == ([CALL, CALL], ())

    def test_a_missing_id_is_the_same_in_every_turn(self) -> None:
        odd = {name: value for name, value in CALL.items() if name != "id"}
        assert [call["id"] for call in self.call(odd, {**odd, "id": None}, CALL)[0]] == [
            "call_1_0",
            "call_1_1",
            "c",
        ]

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"a": "\u00e9"}, '{"a": "\\u00e9"}'),
            (None, "{}"),
            ([1], "[1]"),
            ("not JSON", "not JSON"),
            ("", ""),
        ],
    )
    def test_arguments_become_text(self, arguments: Any, text: str) -> None:
        odd = {**CALL, "index": 1, "function": {"name": "f", "arguments": arguments}}
        assert self.call(odd)[0][0]["function"] == {"name": "f", "arguments": text}

    @pytest.mark.parametrize(
        ("call", "param"),
        [
            ({**CALL, "type": "custom"}, "messages[0].tool_calls[0].type"),
            ({"id": "c", "type": "function"}, "messages[0].tool_calls[0].function"),
            ({"id": "c", "function": 1}, "messages[0].tool_calls[0].function"),
            (1, "messages[0].tool_calls[0]"),
        ],
    )
    def test_what_no_worker_takes(self, call: Any, param: str) -> None:
        assert refused([{"role": "assistant", "tool_calls": [call]}]).param == param


class TestFunctionCalls:
    def test_they_become_tool_calls(self) -> None:
        ask = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
        answer = {"role": "function", "name": "f", "content": "1"}
        kept, dropped = sent([USER, ask, answer, ask, answer])
        assert dropped == ()
        function = {"name": "f", "arguments": "{}"}
        assert kept == [
            USER,
            *(
                message
                for at in (1, 3)
                for message in (
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [{"id": f"call_{at}", "type": "function", "function": function}],
                    },
                    {"role": "tool", "tool_call_id": f"call_{at}", "content": "1"},
                )
            ),
        ]

    @pytest.mark.parametrize(
        ("messages", "param"),
        [
            ([{"role": "function", "name": "f", "content": "1"}], "messages[0]"),
            ([USER, {"role": "assistant", "function_call": "f"}], "messages[1].function_call"),
            (
                [{"role": "assistant", "function_call": {"name": "f"}, "tool_calls": [CALL]}],
                "messages[0].function_call",
            ),
        ],
    )
    def test_what_cannot_be_translated(self, messages: Any, param: str) -> None:
        assert refused(messages).param == param


@pytest.mark.parametrize("kind", sorted(UNKNOWN_PARTS))
def test_parts_that_workers_do_not_know(kind: str) -> None:
    error = refused([USER, {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": kind}]}])
    assert error.param == "messages[1].content[1]"
    assert kind in error.message


def test_developer_becomes_system_for_the_models_that_want_it() -> None:
    messages = [{"role": "developer", "content": "s"}, {"role": "user", "content": "developer"}]
    system = [{"role": "system", "content": "s"}, messages[1]]
    assert sent(messages)[0] == messages
    assert sent(messages, options=Options(developer_as_system=frozenset({"other"})))[0] == messages
    assert sent(messages, options=Options(developer_as_system=frozenset({"m"}))) == (system, ())


texts = st.text(max_size=5)
keys = st.sampled_from(
    ["role", "content", "name", "tool_calls", "function_call", "function", "id", "type", "arguments", *BUNDLE]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | texts | st.sampled_from(["function", "user", "file"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.dictionaries(keys, values, max_size=5) | values, max_size=4))
def test_whatever_comes_is_served_or_refused(messages: list[Any]) -> None:
    try:
        kept, _ = sent(messages)
    except InvalidField:
        return
    assert len(kept) == len(messages)
    again, dropped = sent(kept)
    assert (again, dropped) == (kept, ()), "what is sent needs no second pass"
