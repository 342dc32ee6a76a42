from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
litellm = pytest.importorskip("litellm", reason="needs the extra [clients]")

MESSAGES: Any = [{"role": "user", "content": "hello"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object"}},
    "cache_control": {"type": "ephemeral"},
}


@pytest.fixture
async def complete(base_url: str) -> Any:
    litellm.telemetry = False
    litellm.suppress_debug_info = True

    async def complete(**fields: Any) -> Any:
        return await litellm.acompletion(
            model="openai/sim", api_base=base_url, api_key="none", max_retries=0, **fields
        )

    yield complete
    litellm.in_memory_llm_clients_cache.flush_cache()


async def test_a_whole_answer(complete: Any) -> None:
    answer = await complete(
        messages=MESSAGES,
        max_tokens=6,
        temperature=0.5,
        user="u",
        metadata={"trace": "x"},
        tools=[TOOL],
        tool_choice="auto",
        parallel_tool_calls=True,
        stop=None,
        seed=None,
        extra_body={"top_k": -1, "metadata": {"a": "b"}},
    )
    assert answer.usage.completion_tokens == 6


async def test_a_stream(complete: Any) -> None:
    stream = await complete(
        messages=MESSAGES, max_completion_tokens=6, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_the_history_of_another_provider(complete: Any) -> None:
    """Messages with everything that LiteLLM keeps of an answer."""
    answer = await complete(messages=MESSAGES, max_tokens=4)
    message = answer.choices[0].message.model_dump()
    message["tool_calls"] = [
        {
            "index": 0,
            "id": "c",
            "type": "function",
            "function": {"name": "f", "arguments": "{}"},
            "caller": None,
        }
    ]
    messages = [*MESSAGES, message, {"role": "tool", "tool_call_id": "c", "content": "1"}]
    assert (await complete(messages=messages, max_tokens=4)).choices


async def test_a_refusal_names_the_field(complete: Any) -> None:
    with pytest.raises(litellm.BadRequestError, match="audio"):
        await complete(messages=MESSAGES, extra_body={"audio": {"voice": "x"}})
