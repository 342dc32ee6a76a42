"""The official OpenAI SDK as the client."""

import json

import openai
import pytest
from e2e_bodies import chat, completion, expected_usage
from pydantic import BaseModel

from proxy.sim import expected_answers, expected_text

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    }
]


class Weather(BaseModel):
    city: str
    days: int


@pytest.fixture
def sdk(stack):
    client = openai.OpenAI(
        base_url=f"http://127.0.0.1:{stack.port}/v1",
        api_key="unused",
        max_retries=0,
        timeout=20,
        http_client=openai.DefaultHttpxClient(trust_env=False),
    )
    with client:
        yield client


def chunks(stream):
    with stream:
        return list(stream)


def text_of(parts):
    return "".join(choice.delta.content or "" for part in parts for choice in part.choices)


class TestChat:
    def test_whole(self, sdk):
        body = chat()
        answer = sdk.chat.completions.create(**body)
        (choice,) = answer.choices
        assert choice.message.content == expected_text(body)
        assert choice.message.role == "assistant"
        assert choice.finish_reason == expected_answers(body)[0].finish_reason
        assert answer.usage.total_tokens == expected_usage(body)["total_tokens"]
        assert answer.usage.prompt_tokens_details.cached_tokens == 0

    def test_stream(self, sdk):
        body = chat()
        parts = chunks(sdk.chat.completions.create(**body, stream=True))
        assert text_of(parts) == expected_text(body)
        assert parts[0].choices[0].delta.role == "assistant"
        assert len({part.id for part in parts}) == 1
        assert all(part.usage is None for part in parts)

    def test_usage_in_the_stream(self, sdk):
        body = chat()
        options = {"include_usage": True}
        parts = chunks(sdk.chat.completions.create(**body, stream=True, stream_options=options))
        assert text_of(parts) == expected_text(body)
        assert parts[-1].choices == []
        assert parts[-1].usage.completion_tokens == expected_usage(body)["completion_tokens"]

    def test_many_fields(self, sdk):
        fields = {
            "temperature": 0.3,
            "top_p": 0.9,
            "seed": 3,
            "stop": ["zzz"],
            "frequency_penalty": 0.1,
            "presence_penalty": 0.1,
            "logit_bias": {"5": -1},
            "logprobs": True,
            "top_logprobs": 1,
            "user": "me",
            "metadata": {"dropped": "yes"},
            "store": False,
            "service_tier": "auto",
        }
        body = chat(max_completion_tokens=7, **fields)
        del body["max_tokens"]
        raw = sdk.chat.completions.with_raw_response.create(**body)
        dropped = raw.headers["x-disagg-proxy-dropped"].split(",")
        assert sorted(dropped) == ["metadata", "service_tier", "store"]
        answer = raw.parse()
        assert answer.usage.completion_tokens == 7
        assert len(answer.choices[0].logprobs.content) == 7

    def test_the_streaming_helper(self, sdk):
        body = chat(max_tokens=100)
        with sdk.chat.completions.stream(**body) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        assert final.choices[0].message.content == expected_text(body)


class TestTools:
    def body(self, **fields):
        return chat(tools=TOOLS, tool_choice="required", max_tokens=64, **fields)

    def test_whole(self, sdk):
        answer = sdk.chat.completions.create(**self.body())
        (call,) = answer.choices[0].message.tool_calls
        assert answer.choices[0].finish_reason == "tool_calls"
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments).keys() == {"city", "days"}

    def test_stream(self, sdk):
        parts = chunks(sdk.chat.completions.create(**self.body(), stream=True))
        calls = [call for part in parts for choice in part.choices for call in choice.delta.tool_calls or ()]
        assert calls[0].function.name == "get_weather"
        arguments = "".join(call.function.arguments or "" for call in calls)
        assert arguments == expected_answers(self.body())[0].tool_call.arguments
        assert parts[-1].choices[0].finish_reason == "tool_calls"

    def test_the_conversation_goes_on(self, sdk):
        message = sdk.chat.completions.create(**self.body()).choices[0].message
        messages = [
            {"role": "user", "content": "Weather?"},
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"},
        ]
        body = {"model": "sim", "messages": messages, "tools": TOOLS, "max_tokens": 5}
        answer = sdk.chat.completions.create(**body)
        assert answer.choices[0].message.content == expected_text(body)


class TestResponseFormat:
    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_json_schema(self, sdk, stream):
        schema = {"name": "weather", "strict": True, "schema": Weather.model_json_schema()}
        body = chat(response_format={"type": "json_schema", "json_schema": schema}, max_tokens=64)
        if stream:
            text = text_of(chunks(sdk.chat.completions.create(**body, stream=True)))
        else:
            text = sdk.chat.completions.create(**body).choices[0].message.content
        assert text == expected_text(body)
        Weather.model_validate_json(text)

    def test_parse(self, sdk):
        answer = sdk.chat.completions.parse(
            model="sim",
            messages=[{"role": "user", "content": "Weather?"}],
            max_tokens=64,
            response_format=Weather,
        )
        assert isinstance(answer.choices[0].message.parsed, Weather)

    def test_json_object(self, sdk):
        body = chat(response_format={"type": "json_object"}, max_tokens=64)
        json.loads(sdk.chat.completions.create(**body).choices[0].message.content)


class TestCompletions:
    def test_whole(self, sdk):
        body = completion()
        answer = sdk.completions.create(**body)
        assert answer.choices[0].text == expected_text(body)
        assert answer.usage.total_tokens == expected_usage(body)["total_tokens"]

    def test_stream(self, sdk):
        body = completion()
        options = {"include_usage": True}
        parts = chunks(sdk.completions.create(**body, stream=True, stream_options=options))
        text = "".join(choice.text for part in parts for choice in part.choices)
        assert text == expected_text(body)
        assert parts[-1].usage.completion_tokens == expected_usage(body)["completion_tokens"]


def test_models(sdk):
    assert [model.id for model in sdk.models.list()] == ["sim"]


class TestErrors:
    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_the_workers_text(self, sdk, stream):
        """Of its request models, `{"error": text}`, and of its handlers, `{"message": text, ...}`."""
        with pytest.raises(openai.BadRequestError) as caught:
            sdk.chat.completions.create(**chat(temperature="hot"), stream=stream)
        assert "temperature" in str(caught.value.body)
        messages = [{"role": "user", "content": [{"type": "hologram"}]}]
        with pytest.raises(openai.BadRequestError, match="Unknown part type: hologram"):
            sdk.chat.completions.create(**chat(messages=messages), stream=stream)

    def test_the_proxys_own(self, sdk):
        with pytest.raises(openai.BadRequestError) as caught:
            sdk.chat.completions.create(**chat(n=1000))
        error = caught.value
        assert (error.code, error.param, error.type) == ("unsupported_value", "n", "invalid_request_error")
        assert error.request_id is not None

    @pytest.mark.parametrize(
        ("status", "error"),
        [
            (404, openai.NotFoundError),
            (422, openai.UnprocessableEntityError),
            (429, openai.RateLimitError),
            (503, openai.InternalServerError),
        ],
    )
    def test_statuses(self, sdk, stack, status, error):
        stack.cluster.context_workers[0].add_fault(kind="status", status=status, count=1)
        with pytest.raises(error, match="simulated"):
            sdk.chat.completions.create(**chat())

    def test_an_error_within_a_stream(self, sdk, stack):
        """The SDK raises for the proxy's error event; the answer does not look complete."""
        stack.cluster.generation_workers[0].add_fault(kind="cut", after_events=4, count=1)
        stream = sdk.chat.completions.create(**chat(), stream=True)
        with pytest.raises(openai.APIError, match="connection") as caught, stream:
            for _ in stream:
                pass
        assert caught.value.body["code"] == "worker_disconnected"


async def test_the_asynchronous_client(stack):
    client = openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{stack.port}/v1",
        api_key="unused",
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
    )
    body = chat()
    async with client:
        stream = await client.chat.completions.create(**body, stream=True)
        parts = [part async for part in stream]
    assert text_of(parts) == expected_text(body)
