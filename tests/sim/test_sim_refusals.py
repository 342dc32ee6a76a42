"""What workers answer with 400."""

from typing import Any

import pytest
from sim_client import CHAT, Client, chat, completion, context_body, generation_body, new_id

from proxy.sim import SimCluster
from proxy.sim.auth import signature

TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}},
}


def message_of(response: Any) -> str:
    assert response.status_code == 400
    body = response.json()
    assert body == {
        "object": "error",
        "message": body["message"],
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
    return str(body["message"])


async def test_context_refuses(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    for request_id in (None, 0, -5):
        body = context_body(completion())
        body["disaggregated_params"]["disagg_request_id"] = request_id
        assert "disagg_request_id" in message_of(await client.post(worker, body))
    body = context_body(completion())
    assert (await client.post(worker, body)).status_code == 200
    assert "already in use" in message_of(await client.post(worker, body))
    bad = completion(disaggregated_params={"request_type": "prefill"})
    assert "Unknown request type" in message_of(await client.post(worker, bad))
    assert "single prompt" in message_of(
        await client.post(worker, context_body(completion(prompt=["a", "b"])))
    )
    assert "chat_template" in message_of(await client.post(worker, chat(chat_template="x")))
    assert "max_tokens" in message_of(await client.post(worker, completion(max_tokens=0)))
    assert "n must be" in message_of(await client.post(worker, completion(n=0)))
    assert "n must be" in message_of(await client.post(worker, completion(n=1000)))


async def test_handler_errors_are_400_too(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    for body in (
        chat(messages=[]),
        chat(messages=[{"role": "assistant", "tool_calls": [1]}]),
        chat(messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]),
        chat(messages=[{"role": "user", "content": [{"type": "file"}]}]),
        chat(response_format={"type": "json_schema", "json_schema": {"schema": "x"}}),
        completion(prompt=[]),
    ):
        message_of(await client.post(worker, body))
    empty = chat(messages=[], prompt_token_ids=[1, 2], echo=True)
    assert (await client.post(worker, empty)).status_code == 200


async def test_a_tool_call_is_not_visible_in_the_context_answer(cluster: SimCluster, client: Client) -> None:
    body = chat(tools=[TOOL], tool_choice="required", max_tokens=50)
    message = (await client.context(cluster.context_workers[0], body))["choices"][0]["message"]
    assert (message["content"], message["tool_calls"]) == ("", [])


async def test_generation_refuses(cluster: SimCluster, client: Client) -> None:
    context, generation = cluster.context_workers[0], cluster.generation_workers[0]
    good = generation_body(completion(), await client.context(context, completion()))
    other = {**good, "disaggregated_params": {**good["disaggregated_params"], "disagg_request_id": new_id()}}
    assert "no KV cache" in message_of(await client.post(generation, other))
    other = {**good, "disaggregated_params": {**good["disaggregated_params"], "first_gen_tokens": None}}
    assert "first_gen_tokens" in message_of(await client.post(generation, other))
    other = {
        **good,
        "disaggregated_params": {**good["disaggregated_params"], "encoded_opaque_state": "AAECAw=="},
    }
    assert "encoded_opaque_state" in message_of(await client.post(generation, other))
    assert (await client.post(generation, good)).status_code == 200
    assert "no KV cache" in message_of(await client.post(generation, good))
    for wrong in ({"prompt": [1, 2]}, {"disaggregated_params": {"first_gen_tokens": [3]}}):
        fresh = generation_body(completion(), await client.context(context, completion()))
        params = {**fresh["disaggregated_params"], **wrong.get("disaggregated_params", {})}
        response = await client.post(generation, {**fresh, **wrong, "disaggregated_params": params})
        assert "differ" in message_of(response)
    fresh = generation_body(chat(), await client.context(context, chat()))
    del fresh["prompt_token_ids"]
    assert "base64" in message_of(await client.post(generation, {**fresh, "prompt_token_ids_b64": "AQ"}))


async def test_signed_legs(client: Client) -> None:
    async with SimCluster(1, 1, auth_key="secret") as cluster:
        generation = cluster.generation_workers[0]
        body = generation_body(completion(), await client.context(cluster.context_workers[0], completion()))
        assert "authentication" in message_of(await client.post(generation, body))
        wrong = {"x-trtllm-disagg-auth": "sha256=00"}
        assert "authentication" in message_of(await client.post(generation, body, headers=wrong))
        right = {"x-trtllm-disagg-auth": signature("secret", body["disaggregated_params"])}
        assert (await client.post(generation, body, headers=right)).status_code == 200


@pytest.mark.parametrize(
    ("params", "signed"),
    [
        (
            {"encoded_opaque_state": "b3BhcXVl"},
            "dd0226a7360fb1d422781ed05d4db132774395583e9f79091e0113371cae3257",
        ),
        (
            {"ctx_info_endpoint": "tcp://10.0.0.1:5000"},
            "9f231f1556947f2cc0d68b742964cb16e8662f6b41262d536be4f2692f786130",
        ),
    ],
)
def test_signature(params: dict[str, Any], signed: str) -> None:
    assert signature("secret", params) == f"sha256={signed}"


async def test_no_transceiver(client: Client) -> None:
    async with SimCluster(1, 0, transceiver="none") as cluster:
        response = await client.post(cluster.context_workers[0], context_body(completion()))
        assert "cache_transceiver_config" in message_of(response)
        assert (await client.post(cluster.context_workers[0], completion())).status_code == 200


async def test_sequence_limit(client: Client) -> None:
    async with SimCluster(1, 0, max_sequence=20) as cluster:
        worker = cluster.context_workers[0]
        assert (await client.post(worker, completion())).status_code == 200
        message = message_of(await client.post(worker, completion(max_tokens=100)))
        assert "context length" in message
        assert "max_tokens" in message


async def test_bodies_that_cannot_be_read(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    for content in (b"", b"{", b'"a"', b"[]", b"\xff", b"[" * 100_000):
        response = await client.http.post(worker.url + CHAT, content=content)
        assert response.status_code == 400
        assert list(response.json()) == ["error"]
        assert isinstance(response.json()["error"], str)
    response = await client.post(worker, completion(store=True))
    assert response.status_code == 400
    assert "store" in response.json()["error"]
