import gc
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
langchain = pytest.importorskip("langchain_openai", reason="needs the extra [clients]")


@pytest.fixture(autouse=True, scope="module")
def no_sockets_for_others() -> Iterator[None]:
    """The library keeps clients whose connections outlive the event loop: they are collected here, where warnings are
    ignored, and not in the test that comes next."""
    yield
    gc.collect()


@pytest.fixture
def make_model(base_url: str) -> Any:
    def make(**fields: Any) -> Any:
        options = {"max_tokens": 6, "max_retries": 0, **fields}
        return langchain.ChatOpenAI(model="sim", base_url=base_url, api_key="none", **options)

    return make


async def test_a_whole_answer(make_model: Any) -> None:
    answer = await make_model(temperature=0.5, seed=1, n=1).ainvoke("hello")
    assert answer.content
    assert answer.usage_metadata["output_tokens"] == 6


async def test_a_stream(make_model: Any) -> None:
    chunks = [chunk async for chunk in make_model(stream_usage=True).astream("hello")]
    assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) == 6


@pytest.mark.parametrize("choice", ["auto", "any", "required", "f"])
async def test_tools(make_model: Any, choice: str) -> None:
    tool = {
        "type": "function",
        "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
    }
    bound = make_model().bind_tools([tool], tool_choice=choice, parallel_tool_calls=False, strict=True)
    assert await bound.ainvoke("hello")


@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
async def test_structured_output(make_model: Any, method: str) -> None:
    schema = {"title": "X", "description": "d", "type": "object", "properties": {"a": {"type": "string"}}}
    model = make_model().with_structured_output(schema, method=method, include_raw=True)
    answer = await model.ainvoke("hello in json")
    assert answer["raw"].response_metadata["model_name"]


async def test_the_fields_of_openai(make_model: Any) -> None:
    model = make_model(
        reasoning_effort="low",
        logprobs=True,
        top_logprobs=0,
        metadata={"a": "b"},
        model_kwargs={"user": "u", "service_tier": "auto", "store": False, "prompt_cache_key": "session"},
        extra_body={"top_k": -1, "include_reasoning": True},
    )
    assert (await model.ainvoke([("system", "s"), ("human", "hello")])).content


async def test_completions(base_url: str) -> None:
    model = langchain.OpenAI(model="sim", base_url=base_url, api_key="none", max_tokens=6, max_retries=0)
    assert await model.ainvoke("hello")
    assert [chunk async for chunk in model.astream("hello")]
