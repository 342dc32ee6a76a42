"""Event streams, byte for byte."""

import json
import re
from typing import Any

import pytest
from sim_client import Client, chat, completion, events

from proxy.sim import SimCluster, expected_answers

TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}},
}


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


async def stream(client: Client, cluster: SimCluster, body: dict[str, Any], **options: Any) -> str:
    response = await client.post(cluster.generation_workers[0], {**body, "stream": True}, **options)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    return response.content.decode()


async def test_chat_framing(cluster: SimCluster, client: Client) -> None:
    body = chat(max_tokens=2, stream_options={"include_usage": True})
    text = await stream(client, cluster, body)
    created = re.search(r'"created":(\d+)', text)
    assert created is not None
    kind = '"object":"chat.completion.chunk"'
    head = f'data: {{"id":"chatcmpl-1",{kind},"created":{created[1]},"model":"sim","choices":['
    first, second = (quoted(piece) for piece in expected_answers(body)[0].pieces)
    tokens = events(text)[-2]["usage"]["prompt_tokens"]
    assert text == (
        head + '{"index":0,"delta":{"role":"assistant"}}]} \n\n'
        f'{head}{{"index":0,"delta":{{"content":{first},"reasoning_content":""}}}}]}}\n\n'
        f'{head}{{"index":0,"delta":{{"content":{second},"reasoning_content":""}},"finish_reason":"length"}}]}}\n\n'
        f'{head}],"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens + 2},"completion_tokens":2,'
        f'"prompt_tokens_details":{{"cached_tokens":0}}}}}}\n\n'
        "data: [DONE]\n\n"
    )


async def test_completions_framing(cluster: SimCluster, client: Client) -> None:
    body = completion(max_tokens=2)
    text = await stream(client, cluster, body)
    created = re.search(r'"created":(\d+)', text)
    assert created is not None
    kind = '"object":"text_completion"'
    head = f'data: {{"id":"cmpl-1",{kind},"created":{created[1]},"model":"sim","choices":[{{"index":0,'
    first, second = (quoted(piece) for piece in expected_answers(body)[0].pieces)
    middle = '"token_ids":null,"logprobs":null,"finish_reason"'
    end = '"stop_reason":null,"avg_decoded_tokens_per_iter":null}],"usage":null}\n\n'
    assert text == (
        f'{head}"text":{first},{middle}:null,{end}{head}"text":{second},{middle}:"length",{end}data: [DONE]\n\n'
    )


async def test_usage_in_each_chunk(cluster: SimCluster, client: Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    for body in (
        chat(max_tokens=3, stream_options=options),
        completion(max_tokens=3, stream_options=options),
    ):
        parsed = events(await stream(client, cluster, body))
        counts = [event["usage"]["completion_tokens"] for event in parsed[:-1]]
        assert counts == ([0] if "messages" in body else []) + [1, 2, 3, 3]
        assert parsed[-2]["choices"] == []


async def test_empty_stream_options_mean_usage(cluster: SimCluster, client: Client) -> None:
    assert events(await stream(client, cluster, completion(stream_options={})))[-2]["choices"] == []
    without = await stream(client, cluster, completion(stream_options={"include_usage": False}))
    assert events(without)[-2]["choices"]


async def test_choices_in_streams(cluster: SimCluster, client: Client) -> None:
    body = chat(n=3, max_tokens=4)
    parsed = events(await stream(client, cluster, body))
    assert [event["choices"][0]["delta"] for event in parsed[:3]] == [{"role": "assistant"}] * 3
    texts = ["", "", ""]
    for event in parsed[3:-1]:
        choice = event["choices"][0]
        texts[choice["index"]] += choice["delta"]["content"]
    assert texts == [answer.text for answer in expected_answers(body)]


async def test_tool_calls_in_streams(cluster: SimCluster, client: Client) -> None:
    body = chat(tools=[TOOL], tool_choice="required", max_tokens=50)
    parsed = events(await stream(client, cluster, body))
    calls = [event["choices"][0]["delta"]["tool_calls"][0] for event in parsed[1:-1]]
    expected = expected_answers(body)[0].tool_call
    assert expected is not None
    assert calls[0] == {
        "id": expected.id,
        "index": 0,
        "type": "function",
        "function": {"name": "weather", "arguments": ""},
    }
    assert "".join(call["function"]["arguments"] for call in calls) == expected.arguments
    assert parsed[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_reasoning_in_streams(cluster: SimCluster, client: Client) -> None:
    body = chat(chat_template_kwargs={"enable_thinking": True}, max_tokens=6)
    deltas = [event["choices"][0]["delta"] for event in events(await stream(client, cluster, body))[1:-1]]
    expected = expected_answers(body)[0]
    assert "".join(delta["reasoning_content"] for delta in deltas) == expected.reasoning
    assert "".join(delta["content"] for delta in deltas) == expected.text


async def test_stop_in_streams(cluster: SimCluster, client: Client) -> None:
    stop = expected_answers(chat())[0].pieces[2][:3]
    body = chat(stop=stop)
    parsed = events(await stream(client, cluster, body))
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in parsed[:-1])
    assert text == expected_answers(body)[0].text
    assert parsed[-2]["choices"][0]["finish_reason"] == "stop"
    assert parsed[-2]["choices"][0]["stop_reason"] == stop


async def test_logprobs_and_token_ids_in_streams(cluster: SimCluster, client: Client) -> None:
    expected = expected_answers(completion())[0]
    parsed = events(await stream(client, cluster, completion(logprobs=2, detokenize=False)))[:-1]
    assert [event["choices"][0]["token_ids"] for event in parsed] == [[token] for token in expected.token_ids]
    assert parsed[1]["choices"][0]["logprobs"]["text_offset"] == [len(expected.pieces[0])]
    chat_events = events(await stream(client, cluster, chat(logprobs=True)))[1:-1]
    shown = [event["choices"][0]["logprobs"]["content"][0]["token"] for event in chat_events]
    assert shown == list(expected_answers(chat())[0].pieces)


async def test_echo_on_chat(cluster: SimCluster, client: Client) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "It is"}]
    body = chat(messages=messages, echo=True, max_tokens=2)
    deltas = [event["choices"][0]["delta"] for event in events(await stream(client, cluster, body))[:-1]]
    assert deltas[0] == {"role": "assistant"}
    assert deltas[1]["content"] == "It is"
    complete = (await client.post(cluster.context_workers[0], body)).json()
    assert complete["choices"][0]["message"]["content"] == "It is" + expected_answers(body)[0].text


@pytest.mark.parametrize("profile", ["old", "jul"])
async def test_metrics(client: Client, profile: str) -> None:
    async with SimCluster(1, 1, profile=profile) as cluster:
        asked = {"x-trtllm-return-metrics": "1"}
        text = await stream(client, cluster, completion(), headers=asked)
        worker = cluster.generation_workers[0]
        complete = await client.post(worker, completion(), headers=asked)
        if profile == "old":
            assert text.endswith("data: [DONE]\n\n")
            assert "server-timing" not in complete.headers
        else:
            done, event = text.split("data: [DONE]\n\n")
            assert done
            assert event.startswith("event: trtllm.perf_metrics\ndata: {")
            assert set(json.loads(event.split("data: ")[1])) == {
                "Server-Timing",
                "X-TRTLLM-Start-End-Time",
                "X-TRTLLM-Step-Metrics",
                "X-TRTLLM-Ctx-Chunk-Metrics",
            }
            assert "server_ttft;dur=" in complete.headers["server-timing"]
        records = (await client.get(worker, "/perf_metrics")).json()
        assert len(records) == 2
        assert records[0]["perf_metrics"]["timing_metrics"]["first_token_time"] > 0
        assert (await client.get(worker, "/perf_metrics")).json() == []
        plain = await client.post(worker, completion())
        assert "server-timing" not in plain.headers
