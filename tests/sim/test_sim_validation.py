from typing import Any

import pytest
from sim_client import chat, completion

from proxy.sim.profiles import PROFILES
from proxy.sim.validation import BodyError, Validator

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PARAMS = {"request_type": "context_only", "disagg_request_id": 1 << 62}


def check(body: Any, profile: str = "jul") -> None:
    Validator(PROFILES[profile]).check(body, chat=not isinstance(body, dict) or "messages" in body)


GOOD: list[dict[str, Any]] = [
    completion(),
    completion(prompt=[1, 2], stop=["a"], seed=None, temperature=1, logprobs=0),
    completion(prompt=["a", "b"]),
    completion(prompt=[[1], [2, 3]]),
    completion(stream=True, stream_options={"include_usage": True}),
    completion(stream_options={}),
    completion(stream_options=None, stream=False),
    completion(logit_bias={"12": 3.5}, early_stopping="never", truncate_prompt_tokens=3),
    completion(disaggregated_params={**PARAMS, "first_gen_tokens": None, "schedule_style": 0}),
    completion(conversation_params={"conversation_id": 7}),
    chat(),
    chat(max_tokens=None),
    chat(logprobs=True, top_logprobs=2),
    chat(top_logprobs=None),
    chat(tools=[TOOL], tool_choice="required"),
    chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}}),
    chat(tool_choice="auto"),
    chat(tool_choice="none"),
    chat(messages=[{"role": "response_1", "content": [{"type": "text", "text": "x"}], "extra": {"a": 1}}]),
    chat(messages=[{"role": "assistant", "content": None, "tool_calls": None, "refusal": None}]),
    chat(messages=[{"role": "tool", "content": "x", "name": None}]),
    chat(messages=[{"role": "system", "content": "x", "tools": [TOOL]}], tool_choice="required"),
    chat(response_format={"type": "json_schema", "json_schema": {"schema": {}}}),
    chat(response_format={"type": "json_object"}),
    chat(documents=[{"a": "b"}], cache_salt="s", agent_hierarchy=[1], reasoning_effort="high"),
]

BAD: list[Any] = [
    completion(unknown=1),
    completion(max_completion_tokens=3),
    completion(max_tokens="many"),
    completion(max_tokens=1.5),
    completion(max_tokens=True),
    completion(stream="yes"),
    completion(n=None),
    completion(repetition_penalty=None),
    completion(prompt=None),
    completion(prompt=[1, "a"]),
    completion(prompt=[1 << 40]),
    completion(suffix="x"),
    completion(stream_options={"include_usage": True}),
    completion(stream=True, stream_options={"include_obfuscation": True}),
    completion(stream=True, stream_options=[1]),
    completion(logit_bias={"x": 1}),
    completion(logit_bias={"1": 101}),
    completion(truncate_prompt_tokens=0),
    completion(response_format={"type": "grammar"}),
    completion(response_format={"type": "json_object", "strict": True}),
    completion(response_format={}),
    completion(disaggregated_params={"disagg_request_id": 1}),
    completion(disaggregated_params={**PARAMS, "prompt_len": 3}),
    completion(disaggregated_params={**PARAMS, "schedule_style": "context_first"}),
    completion(disaggregated_params={**PARAMS, "ctx_info_endpoint": ["tcp://x"]}),
    completion(conversation_params={"conversation_id": " "}),
    completion(conversation_params={"conversation_id": "a", "subagent_affinity_id": "b"}),
    {"model": "m"},
    {"messages": []},
    [],
    chat(max_completion_tokens=3),
    chat(top_logprobs=0),
    chat(logprobs=False, top_logprobs=0),
    chat(tools=[{**TOOL, "cache_control": {}}]),
    chat(tools=[{"type": "function", "function": {"name": "f", "required": []}}]),
    chat(tools=[{"type": "custom", "function": {"name": "f"}}]),
    chat(tools={}),
    chat(tool_choice=None),
    chat(tool_choice="required"),
    chat(tools=[TOOL], tool_choice="any"),
    chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}, "mode": "auto"}),
    chat(messages="hi"),
    chat(messages=["hi"]),
    chat(messages=[{"content": "x"}]),
    chat(messages=[{"role": "user", "content": 5}]),
    chat(messages=[{"role": "user", "content": "x", "name": None}]),
    chat(messages=[{"role": "user", "content": "x", "tools": [TOOL]}]),
    chat(echo=None),
    chat(cache_salt=" "),
    chat(reasoning_effort="minimal"),
    chat(reasoning_effort="max"),
    chat(parallel_tool_calls=True),
    chat(priority=0.5),
    chat(thinking={"type": "enabled"}),
    chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {"enum": [0] * 1001}}}]),
]


@pytest.mark.parametrize("body", GOOD)
def test_accepts(body: dict[str, Any]) -> None:
    check(body)


@pytest.mark.parametrize("body", BAD)
def test_refuses(body: Any) -> None:
    with pytest.raises(BodyError):
        check(body)


@pytest.mark.parametrize(
    ("body", "profiles"),
    [
        (chat(parallel_tool_calls=True), {"new"}),
        (chat(reasoning_effort="none"), {"new"}),
        (chat(thinking={"type": "enabled", "keep": "all", "effort": "max"}), {"new"}),
        (chat(priority=1), {"new"}),
        (chat(prompt_token_ids_b64="AQAAAA=="), {"jul", "new"}),
        (chat(conversation_params={"conversation_id": "c"}), {"jul", "new"}),
        (chat(tools=[{"type": "function", "function": {"name": "f", "strict": True}}]), {"jul", "new"}),
        (chat(disaggregated_params={**PARAMS, "conversation_id": "c"}), {"old", "jul"}),
        (chat(disaggregated_params={**PARAMS, "schedule_style": 0}), {"jul", "new"}),
        (chat(disaggregated_params={**PARAMS, "ctx_usage": None}), {"jul", "new"}),
        (chat(disaggregated_params={**PARAMS, "return_prompt_token_ids_b64": True}), {"jul", "new"}),
        (chat(disaggregated_params={**PARAMS, "resolved_thinking": True}), {"new"}),
        (chat(prompt_token_ids=[1]), {"old", "jul", "new"}),
    ],
)
def test_versions_differ(body: dict[str, Any], profiles: set[str]) -> None:
    for profile in (name for name, each in PROFILES.items() if each.strict):
        if profile in profiles:
            check(body, profile)
        else:
            with pytest.raises(BodyError):
                check(body, profile)


def test_the_error_names_every_problem_and_shortens_values() -> None:
    with pytest.raises(BodyError) as caught:
        check(completion(foo="x" * 10_000, n=None))
    assert "'foo'" in str(caught.value)
    assert "extra_forbidden" in str(caught.value)
    assert "'n'" in str(caught.value)
    assert len(str(caught.value)) < 1000
