"""Routes of the workers that the proxy passes on in one leg."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from echo_worker import PIECES, echo_worker
from free_port import free_port
from running_proxy import eventually, running_proxy

from proxy.config.pass_through import OWN_PATHS

ROUTES = [
    {"path": "/v1/embeddings", "methods": ["GET", "POST", "DELETE"]},
    {"path": "/v1/rank", "role": "context"},
    *({"path": f"/v1/{name}", "methods": ["GET", "POST"]} for name in ("stream", "cut", "status")),
]


@asynccontextmanager
async def passing(**keys):
    """A proxy whose generation workers are one that echoes and those in ``more``."""
    more = keys.pop("more", [])
    async with echo_worker() as worker:
        section = {"urls": [worker.address, *more]}
        workers = [{"url": worker.address, "role": "context"}]
        async with running_proxy(
            generation_servers=section, workers=workers, pass_through=ROUTES, **keys
        ) as proxy:
            yield proxy, worker


async def test_everything_passes_as_it_came():
    async with passing(forward_headers=["x-tenant"]) as (proxy, worker):
        body = b'\x00 not \xff JSON {"disaggregated_params"'
        headers = {
            "content-type": "multipart/form-data; boundary=x",
            "x-request-id": "r1",
            "x-tenant": "t",
            "authorization": "Bearer secret",
            "cookie": "c=d",
        }
        answer = await proxy.client.post("/v1/embeddings?a=1&b=%20", content=body, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["x-request-id"] == "r1"
        assert "set-cookie" not in answer.headers
        (got,) = worker.of("/v1/embeddings")
        assert answer.json() == got
        assert (got["method"], got["query"]) == ("POST", "a=1&b=%20")
        assert got["body"].encode("latin-1") == body
        for name in ("content-type", "x-request-id", "x-tenant"):
            assert got["headers"][name] == headers[name]
        assert not {"authorization", "cookie"} & got["headers"].keys()
        proxy.assert_settled()


SMUGGLED = '{"disaggregated_params":{"a":1},"x":NaN}'


@pytest.mark.parametrize(
    "body",
    [
        SMUGGLED.encode(),
        b" \r\n" + SMUGGLED.encode(),
        SMUGGLED.encode("utf-8-sig"),
        *(SMUGGLED.encode(coding) for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be")),
        b'{"disaggregated_params":{},"x":"\\ud800"}',
    ],
)
async def test_what_only_the_workers_parser_reads_hides_nothing(body):
    """Nothing could be taken out of it."""
    assert "disaggregated_params" in json.loads(body)
    async with passing() as (proxy, worker):
        for headers in ({"content-type": "application/json; charset=x"}, {}):
            answer = await proxy.client.post("/v1/embeddings", content=body, headers=headers)
            if (
                answer.status_code == 200
            ):  # a lone surrogate in a value is nothing to us: the member is taken out
                assert "disaggregated_params" not in worker.of("/v1/embeddings")[-1]["body"]
            else:
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
        proxy.assert_settled()


async def test_lists_and_broken_texts_are_the_workers_to_judge():
    async with passing() as (proxy, worker):
        for body in (b"[1, 2]", b"", b"nul", b'"a"'):
            headers = {"content-type": "application/json"}
            answer = await proxy.client.post("/v1/embeddings", content=body, headers=headers)
            assert answer.status_code == 200
            assert worker.of("/v1/embeddings")[-1]["body"].encode() == body


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD"])
async def test_methods_without_a_body(method):
    async with passing() as (proxy, worker):
        answer = await proxy.client.request(method, "/v1/embeddings")
        assert answer.status_code == 200
        (got,) = worker.of("/v1/embeddings")
        assert got["method"] == ("GET" if method == "HEAD" else method)
        assert "content-type" not in got["headers"]
        assert bool(answer.content) is (method != "HEAD")


async def test_other_methods_and_paths():
    async with passing() as (proxy, worker):
        assert (await proxy.client.put("/v1/embeddings")).status_code == 405
        assert (await proxy.client.get("/v1/rank")).status_code == 405
        assert (await proxy.client.post("/v1/other")).status_code == 404
        assert not worker.of("/v1/rank")


async def test_the_role():
    async with passing() as (proxy, worker):
        for _ in range(4):
            # The context workers are the simulated one, which has no such route, and the echo.
            assert (await proxy.client.post("/v1/rank", json={})).status_code in (200, 404)
        assert len(worker.of("/v1/rank")) == 2
        assert all(each.ready for each in proxy.service.registry.workers)


async def test_what_must_not_come_from_clients():
    async with passing(model_aliases={"small": "sim"}) as (proxy, worker):
        answer = await proxy.client.post(
            "/v1/embeddings",
            json={"model": "small", "input": ["a"], "disaggregated_params": {}, "prompt_token_ids": [1]},
        )
        assert answer.headers["x-disagg-proxy-dropped"] == "disaggregated_params,prompt_token_ids"
        assert json.loads(worker.of("/v1/embeddings")[0]["body"]) == {"model": "sim", "input": ["a"]}
        untouched = b'{ "model" : "sim",  "input": "b" }'
        await proxy.client.post("/v1/embeddings", content=untouched)
        assert worker.of("/v1/embeddings")[1]["body"].encode() == untouched


@pytest.mark.parametrize("status", [204, 400, 404, 429, 500, 503])
async def test_statuses_pass_and_nothing_is_sent_again(status):
    async with passing(max_retries=3) as (proxy, worker):
        answer = await proxy.client.post(f"/v1/status?{status}", content=b"")
        assert answer.status_code == status
        assert len(worker.of("/v1/status")) == 1


async def test_answers_of_unknown_length_pass_as_they_come():
    async with passing() as (proxy, worker):
        async with proxy.client.stream("GET", "/v1/stream") as answer:
            pieces = answer.aiter_raw()
            assert answer.headers["content-type"] == "application/x-ndjson"
            assert await anext(pieces) == PIECES[0]
            assert proxy.service.admission.in_flight == 1
            worker.release.set()
            assert b"".join([piece async for piece in pieces]) == b"".join(PIECES[1:])
        await eventually(lambda: not proxy.service.admission.in_flight)
        metrics = (await proxy.client.get("/metrics")).text
        labels = 'model="",outcome="ok",route="/v1/stream",stream="true"'
        assert f"disagg_proxy_requests_total{{{labels}}} 1.0" in metrics


async def test_a_stream_that_breaks_off_is_not_completed():
    async with passing() as (proxy, worker):
        worker.release.set()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET /v1/cut HTTP/1.1\r\nhost: x\r\n\r\n")
        received = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert PIECES[0] in received
        assert b"error" not in received.partition(b"\r\n\r\n")[2]
        assert not received.endswith(b"0\r\n\r\n")


async def test_a_client_that_leaves_ends_the_leg():
    async with passing() as (proxy, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET /v1/stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(PIECES[0].strip())
        writer.close()
        await eventually(lambda: not proxy.service.admission.in_flight)
        proxy.assert_settled()


async def test_only_an_unreachable_worker_is_replaced():
    dead = f"127.0.0.1:{free_port()}"
    async with passing(more=[dead], probe_interval=60, max_retries=2) as (proxy, worker):
        for _ in range(4):
            assert (await proxy.client.post("/v1/embeddings", json={})).status_code == 200
        assert len(worker.of("/v1/embeddings")) == 4


async def test_limits_and_pause_hold():
    async with passing(max_inflight=1, max_queued=1) as (proxy, worker):
        first = asyncio.create_task(proxy.client.get("/v1/stream"))
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        second = asyncio.create_task(proxy.client.post("/v1/embeddings", json={}))
        await eventually(lambda: proxy.service.admission.queued == 1)
        third = await proxy.client.post("/v1/embeddings", json={})
        assert third.json()["error"]["code"] == "queue_full"
        assert not worker.of("/v1/embeddings")
        worker.release.set()
        assert (await first).status_code == (await second).status_code == 200


async def test_api_keys_are_asked_for(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a:sk-a\n")
    async with passing(api_keys_file=str(keys)) as (proxy, worker):
        assert (await proxy.client.post("/v1/embeddings")).status_code == 401
        headers = {"authorization": "Bearer sk-a"}
        assert (await proxy.client.post("/v1/embeddings", headers=headers)).status_code == 200
        assert len(worker.of("/v1/embeddings")) == 1


async def test_the_paths_of_the_proxy_are_its_own():
    async with passing() as (proxy, _):
        for path in OWN_PATHS:
            assert (await proxy.client.request("OPTIONS", path)).status_code == 405, path
