import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.wire.errors import InvalidField
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.fields.policy import FieldPolicy, Options, header_value
from proxy.wire.members import Members, split_object
from proxy.wire.versions import WorkerVersion

quick = settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def policy(version: str = "jul", chat: bool = True, accept: bool = False) -> FieldPolicy:
    options = Options(accept_prompt_token_ids=accept)
    return FieldPolicy(ACCEPTED[WorkerVersion(version)], chat=chat, options=options)


def apply(body: bytes | dict[str, Any], rules: FieldPolicy) -> tuple[dict[str, Any], tuple[str, ...]]:
    source = body if isinstance(body, bytes) else json.dumps(body).encode()
    applied = rules.apply(split_object(source))
    return {name: json.loads(bytes(value)) for name, value in applied.members.items()}, applied.dropped


@pytest.mark.parametrize(
    ("version", "chat", "dropped"),
    [
        ("old", True, ("conversation_params", "parallel_tool_calls", "priority", "detokenize", "suffix")),
        ("jul", True, ("parallel_tool_calls", "priority", "detokenize", "suffix")),
        ("new", True, ("detokenize", "suffix")),
        ("old", False, ("conversation_params", "parallel_tool_calls", "priority", "tools")),
        ("jul", False, ("parallel_tool_calls", "priority", "tools")),
        ("new", False, ("parallel_tool_calls", "tools")),
    ],
)
def test_members_by_version_and_route(version: str, chat: bool, dropped: tuple[str, ...]) -> None:
    body = {
        "model": "m", "conversation_params": {"conversation_id": "c"}, "parallel_tool_calls": True, "priority": 0.5,
        "detokenize": True, "suffix": "", "tools": [], "temperature": 0,
    }  # fmt: skip
    kept, named = apply(body, policy(version, chat))
    assert named == dropped
    assert kept == {name: value for name, value in body.items() if name not in dropped}
    assert list(kept) == [name for name in body if name not in dropped], "the order stays"


@pytest.mark.parametrize(
    ("version", "chat", "body"),
    [
        ("old", True, {"thinking": {"type": "enabled"}}),
        ("jul", True, {"thinking": {"type": "enabled"}}),
        ("new", False, {"thinking": {"type": "enabled"}}),
        ("new", False, {"cache_salt": "s"}),
        ("new", False, {"reasoning_effort": "low"}),
        ("new", False, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        ("new", False, {"functions": [{"name": "f"}]}),
        ("new", False, {"extra_key": "k"}),
        ("new", False, {"enable_thinking": False}),
        ("new", False, {"messages": [{"role": "user", "content": "x"}]}),
        ("new", False, {"chat_template_kwargs": {"a": 1}}),
        ("new", False, {"top_logprobs": 2}),
        ("new", True, {"prompt": "x"}),
        ("new", True, {"detokenize": False}),
        ("new", True, {"return_context_logits": True}),
        ("new", True, {"suffix": "x"}),
    ],
)
def test_what_a_version_or_route_lacks_is_refused_if_it_means_something(
    version: str, chat: bool, body: dict[str, Any]
) -> None:
    with pytest.raises(InvalidField) as error:
        apply({"model": "m", **body}, policy(version, chat))
    assert error.value.param == next(iter(body))
    assert error.value.code == "unsupported_field"


def test_nothing_to_do() -> None:
    kept, dropped = apply(b'{"model":"m","messages":[1],"temperature":0.10}', policy())
    assert dropped == ()
    assert list(kept) == ["model", "messages", "temperature"]


def test_members_of_the_client_are_not_changed() -> None:
    members = split_object(b'{"max_tokens":1,"max_completion_tokens":2,"store":true,"n":null}')
    policy().apply(members)
    assert list(members) == ["max_tokens", "max_completion_tokens", "store", "n"]


def test_null_means_unset() -> None:
    body = {
        "model": "m",
        "n": None,
        "tool_choice": None,
        "store": None,
        "prompt_token_ids": None,
        "stop": "null",
    }
    assert apply({**body, "disaggregated_params": None}, policy()) == ({"model": "m", "stop": "null"}, ())


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ({"max_tokens": 1}, {"max_tokens": 1}),
        ({"max_completion_tokens": 2}, {"max_tokens": 2}),
        ({"max_tokens": 1, "max_completion_tokens": 2}, {"max_tokens": 2}),
        ({"max_completion_tokens": 2, "max_tokens": 1}, {"max_tokens": 2}),
        ({"max_completion_tokens": None, "max_tokens": 1}, {"max_tokens": 1}),
        ({"max_completion_tokens": 2, "max_tokens": None}, {"max_tokens": 2}),
        ({"max_completion_tokens": None, "max_tokens": None}, {}),
    ],
)
def test_token_budget(body: dict[str, Any], kept: dict[str, Any], chat: bool) -> None:
    assert apply(body, policy(chat=chat)) == (kept, ())


@pytest.mark.parametrize(
    ("stream", "stays"),
    [({"stream": True}, True), ({"stream": False}, False), ({"stream": None}, False), ({}, False)],
)
def test_stream_options_only_with_stream(stream: dict[str, Any], stays: bool) -> None:
    kept, dropped = apply({"stream_options": {"include_usage": True}, **stream}, policy())
    assert ("stream_options" in kept) is stays
    assert dropped == (() if stays else ("stream_options",))


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","disaggregated_params":{"request_type":"generation_only"}}',
        b'{"model":"m","\\u0064isaggregated_params":{"request_type":"generation_only"}}',
        b'{"model":"m","disaggregated_params":null,"disaggregated_params":{}}',
        b'{"model":"m","disaggregated_params":1,"disaggregated\\u005fparams":{}}',
    ],
)
def test_parameters_of_a_client_are_dropped(body: bytes, chat: bool) -> None:
    assert apply(body, policy(chat=chat, accept=True)) == (
        {"model": "m"},
        ("disaggregated_params",),
    )


@pytest.mark.parametrize("name", ["prompt_token_ids_b64", "injected_chat_template_kwargs"])
@pytest.mark.parametrize("accept", [True, False])
def test_internal_members_of_a_client_are_dropped(name: str, accept: bool) -> None:
    assert apply({"model": "m", name: "x"}, policy(accept=accept)) == (
        {"model": "m"},
        (name,),
    )


@pytest.mark.parametrize(
    "spelling", [b"prompt_token_ids", b"\\u0070rompt_token_ids", b"input_ids", b"input\\u005fids"]
)
@pytest.mark.parametrize(("chat", "accept"), [(True, False), (False, False), (False, True)])
def test_token_ids_of_a_client_are_refused(spelling: bytes, chat: bool, accept: bool) -> None:
    with pytest.raises(InvalidField) as error:
        apply(b'{"model":"m","' + spelling + b'":[1]}', policy(chat=chat, accept=accept))
    assert error.value.param in ("prompt_token_ids", "input_ids")
    assert error.value.param in error.value.message
    assert error.value.code == "unsupported_field"


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"prompt_token_ids": [1, 2]}, [1, 2]),
        ({"input_ids": [1, 2]}, [1, 2]),
        ({"input_ids": [1], "prompt_token_ids": [2]}, [2]),
        ({"prompt_token_ids": [2], "input_ids": [1]}, [2]),
        ({"prompt_token_ids": None, "input_ids": [1]}, [1]),
    ],
)
@pytest.mark.parametrize("version", ["old", "jul", "new"])
def test_token_ids_of_a_trusted_client(body: dict[str, Any], ids: list[int], version: str) -> None:
    assert apply(body, policy(version, accept=True)) == ({"prompt_token_ids": ids}, ())


@pytest.mark.parametrize(
    ("dropped", "value"),
    [
        ((), b""),
        (("store",), b"store"),
        (("store", "a.b-c_D9"), b"store,a.b-c_D9"),
        (("x" * 64, "x" * 65), b"x" * 64 + b",other"),
        (("a\r\nset-cookie: x", "store"), b"store,other"),
        (("a\n", "store\n", "\u00e9", "a b", "a,b", "", "\x00", "a:b", "\u0661"), b"other"),
        (tuple(f"f{at}" for at in range(20)), b",".join(b"f%d" % at for at in range(20))),
        (tuple(f"f{at}" for at in range(500)), b",".join(b"f%d" % at for at in range(20)) + b",other"),
    ],
)
def test_header(dropped: tuple[str, ...], value: bytes) -> None:
    assert header_value(dropped) == value


@quick
@given(st.lists(st.text(max_size=70), max_size=25))
def test_header_is_always_printable(dropped: list[str]) -> None:
    value = header_value(tuple(dropped))
    assert len(value) < 65 * 21
    assert (
        value.replace(b",", b"").replace(b"_", b"").replace(b"-", b"").replace(b".", b"").isalnum()
        or not value
    )


@quick
@given(
    st.dictionaries(st.text(), st.none() | st.integers()), st.sampled_from(list(WorkerVersion)), st.booleans()
)
def test_every_member_is_kept_dropped_or_null(
    body: dict[str, Any], version: WorkerVersion, chat: bool
) -> None:
    body = {name.encode("utf-8", "replace").decode(): value for name, value in body.items()}
    rules = policy(version, chat)
    try:
        kept, dropped = apply(body, rules)
    except InvalidField:
        return
    nulls = {name for name, value in body.items() if value is None}
    assert set(kept) | set(dropped) | nulls == set(body)
    assert not set(kept) & set(dropped)


def test_hundred_thousand_members() -> None:
    members: Members = split_object(b"{" + b",".join(b'"f%d":1' % at for at in range(100_000)) + b"}")
    assert len(policy().apply(members).dropped) == 100_000
