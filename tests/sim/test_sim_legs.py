"""Both legs over real sockets, and what they refuse."""

import json
from typing import Any

import msgspec
import pytest
from sim_client import (
    COMPLETIONS,
    Client,
    chat,
    completion,
    context_body,
    events,
    generation_body,
)

from proxy.sim import SimCluster, expected_answers, expected_text, prompt_token_ids
from proxy.sim.logprobs import UNKNOWN, logprob_of
from proxy.sim.tokens import encode_ids, pack_ids

BODIES = [completion, chat]
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}},
}
PARAMS_JUL = [
    "request_type",
    "first_gen_tokens",
    "first_gen_log_probs",
    "first_gen_logits",
    "ctx_request_id",
    "encoded_opaque_state",
    "draft_tokens",
    "disagg_request_id",
    "ctx_dp_rank",
    "ctx_info_endpoint",
    "schedule_style",
    "ctx_usage",
    "conversation_id",
    "return_prompt_token_ids_b64",
]


async def test_completions_context_answer(cluster: SimCluster, client: Client) -> None:
    body = completion()
    answer = await client.context(cluster.context_workers[0], body, schedule_style=0)
    assert list(answer) == ["id", "object", "created", "model", "choices", "usage", "prompt_token_ids"]
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert answer["prompt_token_ids"] == prompt_token_ids(body)
    prompt_tokens = len(answer["prompt_token_ids"])
    assert answer["usage"] == {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + 1,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    (choice,) = answer["choices"]
    params = choice.pop("disaggregated_params")
    (expected,) = expected_answers(body)
    assert choice == {
        "index": 0,
        "text": expected.pieces[0],
        "token_ids": None,
        "logprobs": None,
        "context_logits": None,
        "finish_reason": "not_finished",
        "stop_reason": None,
        "avg_decoded_tokens_per_iter": None,
    }
    assert list(params) == PARAMS_JUL
    assert params["request_type"] == "context_only"
    assert params["first_gen_tokens"] == [expected.token_ids[0]]
    assert params["ctx_request_id"] == params["disagg_request_id"] > 1 << 40
    assert params["schedule_style"] == 0
    assert params["return_prompt_token_ids_b64"] is False
    assert cluster.kv.counts().held == 1


async def test_chat_context_answer(cluster: SimCluster, client: Client) -> None:
    body = chat()
    answer = await client.context(cluster.context_workers[0], body)
    assert list(answer)[-2:] == ["prompt_token_ids", "prompt_token_ids_b64"]
    assert answer["prompt_token_ids"] == prompt_token_ids(body)
    assert answer["prompt_token_ids_b64"] is None
    (choice,) = answer["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": expected_answers(body)[0].pieces[0],
        "reasoning_content": "",
        "reasoning": None,
        "tool_calls": [],
    }
    assert choice["mm_embedding_handle"] is None


async def test_base64_ids_are_for_chat_only(cluster: SimCluster, client: Client) -> None:
    context = cluster.context_workers[0]
    answer = await client.context(context, chat(), return_prompt_token_ids_b64=True)
    assert answer["prompt_token_ids"] is None
    assert answer["prompt_token_ids_b64"] == encode_ids(pack_ids(prompt_token_ids(chat())))
    assert answer["choices"][0]["disaggregated_params"]["return_prompt_token_ids_b64"] is True
    plain = await client.context(context, completion(), return_prompt_token_ids_b64=True)
    assert plain["prompt_token_ids"] == prompt_token_ids(completion())
    assert "prompt_token_ids_b64" not in plain


@pytest.mark.parametrize("make", BODIES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("profile", ["old", "jul", "new"])
async def test_both_legs(client: Client, make: Any, stream: bool, profile: str) -> None:
    async with SimCluster(1, 1, profile=profile) as cluster:
        body = make(stream=stream, **({"stream_options": {"include_usage": True}} if stream else {}))
        response = await client.both(cluster.context_workers[0], cluster.generation_workers[0], body)
        expected = expected_text(body)
        if stream:
            parsed = events(response.text)
            choices = [event["choices"][0] for event in parsed if event != "[DONE]" and event["choices"]]
            if make is chat:
                text = "".join(choice["delta"].get("content", "") for choice in choices)
            else:
                text = "".join(choice["text"] for choice in choices)
            usage = parsed[-2]["usage"]
            assert choices[-1]["finish_reason"] == "length"
        else:
            choice = response.json()["choices"][0]
            text = choice["message"]["content"] if make is chat else choice["text"]
            usage = response.json()["usage"]
            assert choice["disaggregated_params"]["request_type"] == "generation_only"
            assert response.json()["prompt_token_ids"] is None
        assert text == expected
        prompt_tokens = len(prompt_token_ids(body))
        assert usage["prompt_tokens"] == prompt_tokens
        assert usage["completion_tokens"] == 6
        # The context worker's count when it was handed over; else the generation worker's own view.
        cached = prompt_tokens if profile == "old" else 0
        assert usage["prompt_tokens_details"] == {"cached_tokens": cached}
        assert cluster.kv.counts().as_dict() == {
            "held": 0,
            "stored": 1,
            "taken": 1,
            "expired": 0,
            "refused": 0,
        }


async def test_old_chat_context_has_no_ids_and_generation_renders_by_itself(client: Client) -> None:
    async with SimCluster(1, 1, profile="old") as cluster:
        answer = await client.context(cluster.context_workers[0], chat())
        assert answer["prompt_token_ids"] is None
        assert answer["prompt_token_ids_b64"] is None
        body = generation_body(chat(), answer)
        assert body["prompt_token_ids"] is None
        response = await client.post(cluster.generation_workers[0], body)
        assert response.json()["choices"][0]["message"]["content"] == expected_text(chat())


async def test_base64_relay_and_stripped_history(cluster: SimCluster, client: Client) -> None:
    answer = await client.context(cluster.context_workers[0], chat(), return_prompt_token_ids_b64=True)
    body = generation_body(chat(), answer)
    assert body["prompt_token_ids_b64"]
    body["messages"] = body["messages"][-1:]
    response = await client.post(cluster.generation_workers[0], body)
    assert response.json()["choices"][0]["message"]["content"] == expected_text(chat())


async def test_aggregated(cluster: SimCluster, client: Client) -> None:
    worker = cluster.generation_workers[0]
    for body in (completion(n=2), chat(n=2)):
        choices = (await client.post(worker, body)).json()["choices"]
        texts = [choice["message"]["content"] if "messages" in body else choice["text"] for choice in choices]
        assert texts == [answer.text for answer in expected_answers(body)]
        assert choices[0]["disaggregated_params"] is None
    several = completion(prompt=["a", "b"], n=2)
    choices = (await client.post(worker, several)).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert [choice["text"] for choice in choices] == [answer.text for answer in expected_answers(several)]
    assert cluster.kv.counts().stored == 0


async def test_budget_of_one_is_length_and_still_handed_over(cluster: SimCluster, client: Client) -> None:
    body = completion(max_tokens=1)
    answer = await client.context(cluster.context_workers[0], body)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert cluster.kv.counts().held == 1
    response = await client.post(cluster.generation_workers[0], generation_body(body, answer))
    assert response.json()["choices"][0]["text"] == expected_text(body)


async def test_context_can_finish_the_request(cluster: SimCluster, client: Client) -> None:
    context = cluster.context_workers[0]
    marked = completion(prompt="please [sim:context-stop]")
    first = expected_answers(completion())[0].token_ids[0]
    for body in (marked, completion(stop_token_ids=[first])):
        answer = await client.context(context, body)
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "stop"
        assert choice["text"] == expected_text(body)
        assert choice["disaggregated_params"]["disagg_request_id"] is None
    assert cluster.kv.counts().stored == 0


async def test_tools_reasoning_structure_and_choices_pass_both_legs(
    cluster: SimCluster, client: Client
) -> None:
    bodies = [
        chat(tools=[TOOL], tool_choice="required", max_tokens=50),
        chat(chat_template_kwargs={"enable_thinking": True}, max_tokens=9),
        chat(response_format={"type": "json_object"}, max_tokens=50),
        chat(n=2),
    ]
    for body in bodies:
        response = await client.both(cluster.context_workers[0], cluster.generation_workers[0], body)
        for choice, expected in zip(response.json()["choices"], expected_answers(body), strict=True):
            message = choice["message"]
            assert choice["finish_reason"] == expected.finish_reason
            assert message["content"] == expected.text
            assert message["reasoning_content"] == expected.reasoning
            calls = [call["function"]["arguments"] for call in message["tool_calls"]]
            assert calls == ([] if expected.tool_call is None else [expected.tool_call.arguments])


async def test_thinking_comes_with_the_hand_off(client: Client) -> None:
    async with SimCluster(1, 1, profile="new") as cluster:
        body = chat(messages=[{"role": "user", "content": "[sim:think]"}])
        answer = await client.context(cluster.context_workers[0], body)
        assert answer["choices"][0]["disaggregated_params"]["resolved_thinking"] is True
        made = generation_body(body, answer)
        made["messages"] = [{"role": "user", "content": "another text"}]
        response = await client.post(cluster.generation_workers[0], made)
        assert (
            response.json()["choices"][0]["message"]["reasoning_content"]
            == expected_answers(body)[0].reasoning
        )


async def test_logprobs_of_the_first_token_come_with_the_hand_off(
    cluster: SimCluster, client: Client
) -> None:
    body = chat(logprobs=True, top_logprobs=2)
    answer = await client.context(cluster.context_workers[0], body)
    params = answer["choices"][0]["disaggregated_params"]
    token = params["first_gen_tokens"][0]
    assert params["first_gen_log_probs"] == [[{"token_id": token, "logprob": logprob_of(token), "rank": 1}]]
    response = await client.post(cluster.generation_workers[0], generation_body(body, answer))
    content = response.json()["choices"][0]["logprobs"]["content"]
    expected = expected_answers(body)[0]
    assert [entry["token"] for entry in content] == list(expected.pieces)
    assert [entry["logprob"] for entry in content] == [logprob_of(token) for token in expected.token_ids]
    assert len(content[0]["top_logprobs"]) == 2
    again = await client.context(cluster.context_workers[0], body)
    made = generation_body(body, again, first_gen_log_probs=None)
    response = await client.post(cluster.generation_workers[0], made)
    assert response.json()["choices"][0]["logprobs"]["content"][0]["logprob"] == UNKNOWN


async def test_completions_logprobs_and_token_ids(cluster: SimCluster, client: Client) -> None:
    expected = expected_answers(completion())[0]
    worker = cluster.context_workers[0]
    shown = (await client.post(worker, completion(logprobs=1))).json()["choices"][0]["logprobs"]
    assert shown["tokens"] == list(expected.pieces)
    assert shown["token_logprobs"] == [logprob_of(token) for token in expected.token_ids]
    assert shown["text_offset"][1] == len(expected.pieces[0])
    assert (await client.post(worker, completion(logprobs=0))).json()["choices"][0]["logprobs"] is None
    choice = (await client.post(worker, completion(detokenize=False))).json()["choices"][0]
    assert (choice["text"], choice["token_ids"]) == ("", list(expected.token_ids))


@pytest.mark.parametrize("transceiver", ["cpp", "python"])
async def test_transceivers(client: Client, transceiver: str) -> None:
    async with SimCluster(1, 1, transceiver=transceiver) as cluster:
        answer = await client.context(cluster.context_workers[0], completion())
        params = answer["choices"][0]["disaggregated_params"]
        assert (params["encoded_opaque_state"] is None) == (transceiver == "python")
        assert (params["ctx_info_endpoint"] is None) == (transceiver == "cpp")
        response = await client.post(cluster.generation_workers[0], generation_body(completion(), answer))
        assert response.status_code == 200


@pytest.mark.parametrize(("profile", "status"), [("old", 400), ("jul", 200), ("new", 200)])
async def test_msgpack_bodies(client: Client, profile: str, status: int) -> None:
    async with SimCluster(1, 0, profile=profile) as cluster:
        worker = cluster.context_workers[0]
        headers = {"content-type": "application/json", "x-trtllm-msgpack": "1"}
        packed = msgspec.msgpack.encode(context_body(completion()))
        response = await client.http.post(worker.url + COMPLETIONS, content=packed, headers=headers)
        assert response.status_code == status
        assert worker.requests[-1].json()["prompt"] == "Once upon a time"


async def test_large_bodies(cluster: SimCluster, client: Client) -> None:
    body = completion(prompt="größer " * 30_000)
    response = await client.both(cluster.context_workers[0], cluster.generation_workers[0], body)
    assert response.json()["choices"][0]["text"] == expected_text(body)
    assert len(json.dumps(prompt_token_ids(body))) > 300_000
