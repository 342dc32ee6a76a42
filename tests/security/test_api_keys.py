"""Who is let in, and what goes on to the workers."""

import asyncio
import hashlib

import pytest
from running_proxy import chat, eventually, running_proxy

from proxy.config import watched_file
from proxy.sim.application import Application

ALICE, BOB, CAROL = "key-of-alice", "key-of-bob", "key-of-carol"


def bearer(key):
    return {"authorization": f"Bearer {key}"}


@pytest.fixture
def keys_file(tmp_path):
    path = tmp_path / "keys"
    digest = hashlib.sha256(BOB.encode()).hexdigest()
    path.write_text(f"# comment\n\nalice:{ALICE}\nbob:sha256={digest}\n")
    return path


@pytest.mark.parametrize("kind", ["own", "uvicorn"])
async def test_known_keys_are_let_in(keys_file, kind):
    async with running_proxy(kind=kind, api_keys_file=str(keys_file)) as proxy:
        for key in (ALICE, BOB):
            assert (await proxy.send(headers=bearer(key))).status_code == 200
        for headers, code in (
            ({}, "missing_api_key"),
            (bearer(CAROL), "invalid_api_key"),
            (bearer(ALICE + "x"), "invalid_api_key"),
            ({"authorization": "Bearer"}, "invalid_api_key"),
            ({"authorization": ALICE}, "missing_api_key"),
        ):
            response = await proxy.send(headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == code
            assert response.json()["error"]["type"] == "invalid_request_error"
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.headers["x-disagg-proxy-error"] == f"client;{code}"
        assert proxy.legs("context") == 2


async def test_health_and_metrics_need_no_key(keys_file):
    async with running_proxy(api_keys_file=str(keys_file), root_path="/llm") as proxy:
        for path in ("/health", "/health/live", "/health/ready/", "/metrics", "/llm/metrics"):
            assert (await proxy.client.get(path)).status_code == 200, path
        for path in (
            "/v1/models",
            "/cluster_info",
            "/version",
            "/nothing",
            "/health/../v1/models",
            "//health",
        ):
            assert (await proxy.client.get(path)).status_code == 401, path


async def test_keys_are_read_again(keys_file, monkeypatch, caplog):
    monkeypatch.setattr(watched_file, "LOOK_SECONDS", 0.05)
    async with running_proxy(api_keys_file=str(keys_file)) as proxy:
        assert (await proxy.send(headers=bearer(CAROL))).status_code == 401
        keys_file.write_text(f"carol:{CAROL}\n")
        await asyncio.sleep(0.06)
        assert (await proxy.send(headers=bearer(CAROL))).status_code == 200
        assert (await proxy.send(headers=bearer(ALICE))).status_code == 401
        # A mistake leaves the last keys in force.
        keys_file.write_text("no colon here\n")
        await asyncio.sleep(0.06)
        assert (await proxy.send(headers=bearer(CAROL))).status_code == 200
        assert "line 1: expected name:key" in caplog.text
        assert "no colon here" not in caplog.text


async def test_limit_per_key(keys_file):
    async with running_proxy(api_keys_file=str(keys_file), max_inflight_per_key=1) as proxy:
        proxy.hold("context", count=1)
        _, writer = await proxy.open(chat(), f"authorization: Bearer {ALICE}")
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        response = await proxy.send(headers=bearer(ALICE))
        assert response.status_code == 429
        assert response.headers["x-disagg-proxy-error"] == "client;key_limit"
        assert response.headers["retry-after"] == "1"
        assert (await proxy.send(headers=bearer(BOB))).status_code == 200
        writer.close()
        await eventually(lambda: proxy.service.admission.in_flight == 0)
        assert (await proxy.send(headers=bearer(ALICE))).status_code == 200


async def test_several_choices_are_as_many_requests_of_a_key(keys_file):
    """All of them or none: nothing has been done for a request that is refused."""
    async with running_proxy(api_keys_file=str(keys_file), max_inflight_per_key=3) as proxy:
        many = await proxy.send(chat(n=4), headers=bearer(ALICE))
        assert (many.status_code, many.json()["error"]["param"]) == (400, "n")
        proxy.hold("context", count=1)
        _, writer = await proxy.open(chat(), f"authorization: Bearer {ALICE}")
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        legs = proxy.legs("context")
        refused = await proxy.send(chat(n=3), headers=bearer(ALICE))
        assert refused.headers["x-disagg-proxy-error"] == "client;key_limit"
        assert proxy.legs("context") == legs
        assert (await proxy.send(chat(n=2), headers=bearer(ALICE))).status_code == 200
        assert (await proxy.send(chat(n=3), headers=bearer(BOB))).status_code == 200
        writer.close()
        await eventually(lambda: proxy.service.admission.in_flight == 0)
        assert (await proxy.send(chat(n=3), headers=bearer(ALICE))).status_code == 200


def seen(proxy, name):
    return [request.header(name) for worker in proxy.cluster.workers for request in worker.requests]


async def test_clients_credentials_stay_here(keys_file):
    async with running_proxy(api_keys_file=str(keys_file)) as proxy:
        headers = {**bearer(ALICE), "cookie": "a=b", "x-api-key": "c", "x-tenant": "t"}
        assert (await proxy.send(headers=headers)).status_code == 200
        for name in ("authorization", "cookie", "x-api-key", "x-tenant"):
            assert seen(proxy, name) == [None, None]


async def test_named_headers_pass(keys_file):
    async with running_proxy(forward_headers=["Authorization", "cookie", "x-tenant"]) as proxy:
        headers = {**bearer(ALICE), "cookie": "a=b", "x-tenant": "t", "x-other": "o"}
        assert (await proxy.send(headers=headers)).status_code == 200
        assert seen(proxy, "authorization") == [f"Bearer {ALICE}"] * 2
        assert seen(proxy, "cookie") == ["a=b"] * 2
        assert seen(proxy, "x-tenant") == ["t"] * 2
        assert seen(proxy, "x-other") == [None] * 2


async def test_headers_that_concern_the_connection_stay_here():
    async with running_proxy(forward_headers=["x-tenant"]) as proxy:
        headers = {
            "x-tenant": "t",
            "traceparent": "p",
            "connection": "keep-alive, X-Tenant, traceparent, x-request-id",
        }
        assert (await proxy.send(headers=headers)).status_code == 200
        assert seen(proxy, "x-tenant") == seen(proxy, "traceparent") == [None, None]
        assert None not in seen(proxy, "x-request-id")


async def test_the_workers_key_is_on_legs_and_probes(tmp_path, monkeypatch):
    monkeypatch.setattr(watched_file, "LOOK_SECONDS", 0.05)
    path = tmp_path / "worker-key"
    path.write_text("first\n")
    probes = []
    async with running_proxy(worker_api_key_file=str(path), probe_interval=0.05) as proxy:
        original = Application.__call__

        async def watch(self, scope, receive, send):
            if scope["path"] == "/health":
                probes.append(dict(scope["headers"]).get(b"authorization"))
            await original(self, scope, receive, send)

        monkeypatch.setattr(Application, "__call__", watch)
        assert (await proxy.send(headers=bearer("of-the-client"))).status_code == 200
        assert seen(proxy, "authorization") == ["Bearer first"] * 2
        await eventually(lambda: b"Bearer first" in probes)
        path.write_text("second\n")
        await asyncio.sleep(0.06)
        assert (await proxy.send()).status_code == 200
        assert seen(proxy, "authorization")[1::2] == ["Bearer second"] * 2
        await eventually(lambda: b"Bearer second" in probes)
