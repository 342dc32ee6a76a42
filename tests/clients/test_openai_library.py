"""The official library, with everything that its signatures offer and workers can serve."""

from typing import Any

import openai
import pytest
from running_proxy import RunningProxy

TOOL: Any = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}
MESSAGES: Any = [{"role": "system", "content": "s"}, {"role": "user", "content": "hello", "name": "n"}]
HARMLESS: dict[str, Any] = {
    "store": True,
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "safety_identifier": "x",
    "prompt_cache_key": "session",
    "prompt_cache_retention": "24h",
    "prediction": {"type": "content", "content": "x"},
    "modalities": ["text"],
    "verbosity": "low",
    "user": "u",
    "seed": 1,
    "logit_bias": {"5": 1},
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "temperature": 0.5,
    "top_p": 0.9,
    "stop": ["zzz"],
    "n": 1,
    "logprobs": True,
    "top_logprobs": 0,
    "parallel_tool_calls": False,
    "tools": [TOOL],
    "tool_choice": "auto",
    "reasoning_effort": "low",
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
}


@pytest.fixture
async def client(base_url: str) -> Any:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as made:
        yield made


@pytest.mark.parametrize("budget", ["max_tokens", "max_completion_tokens"])
async def test_everything_at_once(client: openai.AsyncOpenAI, budget: str) -> None:
    answer = await client.chat.completions.with_raw_response.create(
        model="sim", messages=MESSAGES, **{budget: 6}, **HARMLESS
    )
    parsed: Any = answer.parse()
    assert 1 <= parsed.usage.completion_tokens <= 6
    dropped = answer.headers["x-disagg-proxy-dropped"].split(",")
    assert {"store", "metadata", "service_tier", "prediction", "modalities", "verbosity"} <= set(dropped)


async def test_a_stream(client: openai.AsyncOpenAI) -> None:
    options: Any = {"include_usage": True, "include_obfuscation": False}
    stream = await client.chat.completions.create(
        model="sim", messages=MESSAGES, max_completion_tokens=6, stream=True, stream_options=options
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6


async def test_completions(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model="sim", prompt="hello", max_tokens=6, logprobs=0, user="u", extra_body={"top_k": -1}
    )
    assert answer.choices[0].text
    stream = await client.completions.create(
        model="sim", prompt=[1, 2, 3], max_tokens=6, stream=True, stream_options={"include_usage": True}
    )
    assert [chunk async for chunk in stream][-1].usage is not None


async def test_an_agents_loop(client: openai.AsyncOpenAI) -> None:
    """The library's own answers go back as they came, with all the nulls of a dump."""
    messages: list[Any] = list(MESSAGES)
    for _ in range(3):
        answer = await client.chat.completions.create(
            model="sim", messages=messages, max_tokens=4, tools=[TOOL]
        )
        messages += [answer.choices[0].message.model_dump(), {"role": "user", "content": "on"}]


async def test_extra_body_of_other_engines(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="sim",
        messages=MESSAGES,
        max_tokens=4,
        extra_body={
            "top_k": -1,
            "guided_json": {"type": "object"},
            "return_tokens_as_token_ids": True,
            "chat_template_kwargs": {"enable_thinking": False},
        },
    )
    assert answer.choices


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"audio": {"voice": "x", "format": "wav"}}, "audio"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"reasoning_effort": "minimal"}, "reasoning_effort"),
        ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, "tools[0].type"),
        ({"top_logprobs": 3}, "top_logprobs"),
    ],
)
async def test_what_would_change_the_meaning_is_an_error_of_the_librarys(
    client: openai.AsyncOpenAI, fields: Any, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(model="sim", messages=MESSAGES, **fields)
    assert error.value.param == param
    assert error.value.type == "invalid_request_error"
    assert param in error.value.message


async def test_the_conversation_reaches_the_workers(client: openai.AsyncOpenAI, proxy: RunningProxy) -> None:
    await client.chat.completions.create(
        model="sim", messages=MESSAGES, max_tokens=4, extra_headers={"x-session-id": "session-7"}
    )
    for worker in proxy.cluster.workers:
        (request,) = worker.requests
        body = request.json()
        if worker.profile.name == "old":
            assert "conversation_params" not in body
            assert body["disaggregated_params"]["conversation_id"] == "session-7"
        else:
            assert body["conversation_params"] == {"conversation_id": "session-7"}
