"""The other routes of a worker, the control routes, and connection handling."""

import asyncio

import pytest
from sim_client import CHAT, Client, chat, completion, context_body, raw_connection, raw_request

from proxy.sim import SimCluster, prompt_token_ids
from proxy.sim.blocks import block_hashes


async def test_plain_routes(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    health = await client.get(worker, "/health")
    assert (health.status_code, health.content) == (200, b"")
    assert (await client.get(worker, "/health_generate")).text == "Generation health check OK"
    assert (await client.get(worker, "/version")).json() == {"version": "1.3.0rc24"}
    (model,) = (await client.get(worker, "/v1/models")).json()["data"]
    assert (model["id"], model["owned_by"]) == ("sim", "tensorrt_llm")
    clock = (await client.get(worker, "/steady_clock_offset")).json()
    assert clock["receive_ts"] <= clock["transmit_ts"]
    offset = await client.http.post(worker.url + "/steady_clock_offset", json={"offset": -1.5})
    assert (offset.status_code, offset.content) == (200, b"")
    assert worker.clock_offset == -1.5
    assert (await client.http.post(worker.url + "/steady_clock_offset", json={})).status_code == 400
    assert (await client.get(worker, "/metrics")).json()[0]["numActiveRequests"] == 0
    ids = (
        await client.http.post(worker.url + "/_internal/tokenize", json={"prompt": "Once upon a time"})
    ).json()
    assert ids == {"count": 5, "tokens": prompt_token_ids(completion())}
    assert (await client.http.post(worker.url + "/_internal/tokenize", json={})).status_code == 400


async def test_unknown_paths_and_methods(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    response = await client.get(worker, "/nowhere")
    assert (response.status_code, response.json()) == (404, {"detail": "Not Found"})
    response = await client.get(worker, CHAT)
    assert (response.status_code, response.json()) == (405, {"detail": "Method Not Allowed"})
    assert response.headers["allow"] == "POST"
    assert (await client.get(worker, "/cluster_info")).status_code == 404


@pytest.mark.parametrize("profile", ["old", "jul", "new"])
async def test_server_info(client: Client, profile: str) -> None:
    async with SimCluster(1, 0, profile=profile) as cluster:
        worker = cluster.context_workers[0]
        info = (await client.get(worker, "/server_info")).json()
        assert info["disaggregated_params"]["ctx_info_endpoint"][0].startswith("tcp://")
        assert info["disaggregated_params"]["ctx_dp_rank"] == 0
        extra = {"max_batch_size": 256, "kv_cache_hash_algo": "v1_block_key", "tokens_per_block": 32}
        assert {name: info[name] for name in info if name in extra} == ({} if profile == "old" else extra)


async def test_server_info_of_the_other_transceiver(client: Client) -> None:
    async with SimCluster(1, 0, transceiver="cpp") as cluster:
        info = (await client.get(cluster.context_workers[0], "/server_info")).json()
        assert info["disaggregated_params"] == {}


async def test_openapi(cluster: SimCluster, client: Client) -> None:
    document = (await client.get(cluster.context_workers[0], "/openapi.json")).json()
    properties = document["components"]["schemas"]["ChatCompletionRequest"]["properties"]
    assert "max_tokens" in properties
    assert "max_completion_tokens" not in properties
    async with SimCluster(1, 0, openapi=False) as other:
        assert (await client.get(other.context_workers[0], "/openapi.json")).status_code == 404


async def test_kv_events_and_cached_tokens(client: Client) -> None:
    async with SimCluster(1, 0, kv_events=True, tokens_per_block=4) as cluster:
        worker = cluster.context_workers[0]
        body = completion(prompt=list(range(1000, 1009)))
        assert (await client.context(worker, body))["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        assert (await client.context(worker, body))["usage"]["prompt_tokens_details"] == {"cached_tokens": 8}
        events = (await client.http.post(worker.url + "/kv_cache_events")).json()
        assert [event["data"]["type"] for event in events] == ["created", "stored"]
        hashes = [block["block_hash"] for block in events[1]["data"]["blocks"]]
        assert hashes == block_hashes(body["prompt"], 4)
        assert (await client.http.post(worker.url + "/kv_cache_events")).json() == []
        await client.context(worker, chat(cache_salt="s"))
        await client.context(worker, chat())
        assert len((await client.http.post(worker.url + "/kv_cache_events")).json()) == 2


async def test_no_kv_events_by_default(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    await client.context(worker, completion())
    assert (await client.http.post(worker.url + "/kv_cache_events")).json() == []


async def test_stats_and_recorded_requests(cluster: SimCluster, client: Client) -> None:
    context = cluster.context_workers[0]
    await client.both(context, cluster.generation_workers[0], chat())
    await client.post(context, completion(unknown=1), headers={"x-request-id": "abc"})
    stats = (await client.get(context, "/sim/stats")).json()
    assert stats == context.stats()
    assert stats["requests"] == {"context": 1, "generation": 0, "aggregated": 1, "total": 2}
    assert stats["statuses"] == {"200": 1, "400": 1}
    assert stats["kv"] == {"held": 0, "stored": 1, "taken": 1, "expired": 0, "refused": 0}
    assert stats["connections"]["total"] == 1
    assert stats["max_running"] == 1
    everything = (await client.get(context, "/sim/stats/all")).json()
    assert everything["generation-0"]["requests"]["generation"] == 1
    other = (await client.get(context, "/sim/stats", params={"worker": "generation-0"})).json()
    assert other["name"] == "generation-0"
    assert (await client.get(context, "/sim/stats", params={"worker": "x"})).status_code == 404
    assert (await client.get(context, "/sim/nothing")).status_code == 404
    first, second = (await client.get(context, "/sim/requests")).json()
    assert (first["leg"], first["path"], first["body"]["messages"]) == ("context", CHAT, chat()["messages"])
    assert ["x-request-id", "abc"] in second["headers"]
    assert context.requests[1].header("x-request-id") == "abc"
    await client.http.delete(context.url + "/sim/requests")
    assert context.stats()["requests"]["total"] == 0
    assert not context.requests


async def test_what_is_recorded(client: Client) -> None:
    async with SimCluster(1, 0, record=2, record_bytes=1000) as cluster:
        worker = cluster.context_workers[0]
        for prompt in ("a", "b", "c" * 2000):
            await client.post(worker, completion(prompt=prompt))
        small, large = worker.requests
        assert small.json()["prompt"] == "b"
        assert large.body is None
        assert large.size > 2000
        await client.http.post(worker.url + CHAT, content=b"{")
        shown = (await client.get(worker, "/sim/requests")).json()
        assert shown[-1]["body_base64"] == "ew=="
    async with SimCluster(1, 0, record=0) as cluster:
        await client.post(cluster.context_workers[0], completion())
        assert not cluster.context_workers[0].requests


async def test_kv_routes(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    await client.post(worker, context_body(completion(), request_id=9))
    assert (await client.get(worker, "/sim/kv")).json()["held_ids"] == [9]
    take = worker.url + "/sim/kv/take"
    waiting = {"worker": worker.name, "disagg_request_id": 8, "waiting": True}
    assert (await client.http.post(take, json=waiting)).status_code == 404
    asked = {"worker": worker.name, "disagg_request_id": 9}
    assert (await client.http.post(take, json=asked)).json()["disagg_request_id"] == 9
    assert (await client.http.post(take, json=asked)).status_code == 404
    assert (await client.http.post(take, json={})).status_code == 400
    assert cluster.kv.counts().refused == 1


async def test_idle_connections_are_closed() -> None:
    async with SimCluster(1, 0, keep_alive_seconds=0.05) as cluster:
        worker = cluster.context_workers[0]
        async with raw_connection(worker) as (reader, writer):
            writer.write(raw_request(completion()))
            raw = await asyncio.wait_for(reader.read(), 2)
            assert raw.startswith(b"HTTP/1.1 200")
            assert b"connection: close" not in raw
        assert worker.connections.open == 0
    assert worker.connections.max_open == 1


async def test_each_event_is_one_write(cluster: SimCluster) -> None:
    async with raw_connection(cluster.generation_workers[0]) as (reader, writer):
        writer.write(raw_request(completion(stream=True, max_tokens=5)))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        sizes = []
        while (size := int((await reader.readuntil(b"\r\n")).strip(), 16)) > 0:
            chunk = await reader.readexactly(size + 2)
            assert chunk.startswith(b"data: ")
            assert chunk.endswith(b"\n\n\r\n")
            sizes.append(size)
        assert len(sizes) == 6
