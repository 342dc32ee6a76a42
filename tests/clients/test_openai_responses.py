"""The official library's Responses API, in two legs."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from running_proxy import RunningProxy, running_proxy

ASK: dict[str, Any] = {
    "model": "sim",
    "input": [{"role": "user", "content": "hello"}],
    "instructions": "be brief",
    "max_output_tokens": 6,
    "temperature": 0.5,
    "metadata": {"a": "b"},
    "prompt_cache_key": "session",
}


@pytest.fixture
async def proxy() -> AsyncIterator[RunningProxy]:
    async with running_proxy(cluster={"next_routes": True}) as running:
        yield running
        assert running.legs("context") == running.legs("generation") == 1
        running.assert_settled()


@pytest.fixture
async def client(proxy: RunningProxy) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"http://127.0.0.1:{proxy.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


async def test_an_answer(client: openai.AsyncOpenAI) -> None:
    answer = await client.responses.create(**ASK)
    assert answer.status in ("completed", "incomplete")
    assert answer.output_text
    assert answer.usage is not None
    assert answer.usage.output_tokens == 6


async def test_a_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.responses.create(**ASK, stream=True)
    events = [event async for event in stream]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last: Any = events[-1]
    assert events[0].type == "response.created"
    assert last.response.output_text == text != ""


async def test_a_stream_that_breaks_off(proxy: RunningProxy, client: openai.AsyncOpenAI) -> None:
    proxy.cluster.generation_workers[0].board.add({"kind": "cut", "after_events": 4, "leg": "generation"})
    stream = await client.responses.create(**ASK, stream=True)
    with pytest.raises(openai.APIError, match="closed the connection"):
        async for _ in stream:
            pass
