"""Who may control the workers: nobody on the public port unless the operator says so, and then with the token."""

import httpx
import pytest
from controlled_proxy import controlled
from running_proxy import running_proxy

from proxy.endpoints.admin.routes import admin_routes
from proxy.endpoints.control.routes import control_routes

TOKEN = {"authorization": "Bearer letmein"}
ALICE = {"authorization": "Bearer sk-alice"}


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("letmein\n")
    return str(path)


@pytest.fixture
def keys_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("alice:sk-alice\n")
    return str(path)


def control_paths(proxy):
    routes = control_routes(proxy.service)
    assert {"/workers", "/update_weights", "/abort_request", "/pause"} < routes.keys()
    return [(method, path.replace("*", "x")) for path, methods in routes.items() for method in methods]


async def test_nothing_on_the_public_port_by_default():
    async with controlled() as (proxy, _):
        for method, path in control_paths(proxy):
            answer = await proxy.client.request(method, path, headers=TOKEN)
            assert answer.status_code == 404, path
        for path, methods in admin_routes(proxy.service).items():
            for method in methods:
                assert (await proxy.client.request(method, path)).status_code == 404, path


async def test_on_request_for_those_who_have_the_token(token_file, keys_file):
    keys = {
        "admin_token_file": token_file,
        "admin_listen": None,
        "api_keys_file": keys_file,
        "rl_control_public": True,
        "root_path": "/llm",
        "rl_control": True,
    }
    async with running_proxy(**keys) as proxy:
        for method, path in control_paths(proxy):
            for headers in ({}, ALICE, {"authorization": "Bearer x"}):
                for prefix in ("", "/llm"):
                    answer = await proxy.client.request(method, prefix + path, headers=headers)
                    assert (answer.status_code, answer.json()["error"]["code"]) == (
                        401,
                        "invalid_admin_token",
                    ), path
        assert (await proxy.client.get("/workers", headers=TOKEN)).status_code == 200
        assert (await proxy.client.get("/llm/workers/", headers=TOKEN)).status_code == 200
        # The routes of operators stay behind their listener, and the token is no API key.
        assert (await proxy.client.post("/admin/drain", headers=ALICE)).status_code == 404
        assert (await proxy.client.post("/v1/completions", headers=TOKEN)).status_code == 401
        assert (await proxy.client.get("/v1/models", headers=ALICE)).status_code == 200


async def test_a_path_of_the_workers_covers_no_route_of_the_proxy(token_file):
    keys = {
        "rl_control": True,
        "rl_control_public": True,
        "admin_token_file": token_file,
        "rl_fanout_paths": ["/health", "/pause", "/version"],
    }
    async with running_proxy(**keys) as proxy:
        assert (await proxy.client.get("/health")).content == b""
        assert "proxy" in (await proxy.client.get("/version")).json()
        assert "paused" in (await proxy.client.get("/pause", headers=TOKEN)).json()
        called = await proxy.client.get("/admin/fanout/version", headers=TOKEN)
        assert len(called.json()["results"]) == 2


async def test_the_token_on_the_admin_listener(token_file):
    async with controlled(admin_token_file=token_file) as (proxy, admin):
        for method, path in control_paths(proxy):
            assert (await admin.request(method, path)).status_code == 401, path
        assert (await admin.get("/workers", headers=TOKEN)).status_code == 200


async def test_worker_keys_go_to_the_workers(tmp_path):
    path = tmp_path / "worker-key"
    path.write_text("sk-worker\n")
    cluster = {"rl_control": True}
    async with controlled(cluster=cluster, worker_api_key_file=str(path)) as (proxy, admin):
        assert isinstance(admin, httpx.AsyncClient)
        assert (await admin.get("/memory_status")).status_code == 200
        (call,) = proxy.cluster.workers[0].control_calls
        assert call.header("authorization") == "Bearer sk-worker"
