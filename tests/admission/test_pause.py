"""The admin listener's routes in a single process."""

import asyncio
import os
import socket
import stat

import httpx
import pytest
from running_proxy import CHAT, chat, eventually, running_proxy

from proxy.sim import Speed

SLOW = {"speed": Speed(decode_ms=20)}
ADMIN = {"admin_listen": "127.0.0.1:0"}


def admin_client(proxy, **options):
    return httpx.AsyncClient(base_url=proxy.admin_url, timeout=10, trust_env=False, **options)


async def test_pause_wait_and_resume():
    async with running_proxy(cluster=SLOW, **ADMIN) as proxy, admin_client(proxy) as admin:
        running = proxy.send()
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        paused = await admin.post("/admin/pause")
        assert running.done() or (await running).status_code == 200
        assert paused.status_code == 200
        state = paused.json()
        assert (state["paused"], state["in_flight"], state["orphans"]) == (True, 0, 0)
        waiting = proxy.send()
        await eventually(lambda: proxy.service.admission.queued == 1)
        legs = proxy.legs("context")
        status = (await admin.get("/admin/status")).json()
        assert (status["paused"], status["queued"]) == (True, 1)
        assert status["queued_bytes"] > 0
        assert [process["process"] for process in status["processes"]] == [0]
        assert status["processes"][0]["ready"] is True
        assert status["processes"][0]["queued"] == 1
        assert proxy.legs("context") == legs
        resumed = await admin.post("/admin/resume")
        assert resumed.json()["paused"] is False
        assert (await waiting).status_code == 200
        proxy.assert_settled()


async def test_a_pause_counts_legs_for_clients_who_left():
    async with running_proxy(**ADMIN) as proxy, admin_client(proxy) as admin:
        proxy.service.orphans._tasks.add(task := asyncio.create_task(asyncio.sleep(0.2)))
        task.add_done_callback(proxy.service.orphans._tasks.discard)
        began = asyncio.get_running_loop().time()
        assert (await admin.post("/admin/pause")).status_code == 200
        assert asyncio.get_running_loop().time() - began > 0.15


async def test_a_refusing_pause():
    async with running_proxy(pause_mode="refuse", **ADMIN) as proxy, admin_client(proxy) as admin:
        await admin.post("/admin/pause")
        response = await proxy.send()
        assert response.status_code == 503
        assert response.headers["x-disagg-proxy-error"] == "proxy;paused"
        assert response.headers["retry-after"] == "1"
        await admin.post("/admin/resume")
        assert (await proxy.send()).status_code == 200


async def test_a_queue_that_is_full_during_a_pause():
    async with running_proxy(max_queued=1, timeout_queue=0.2, **ADMIN) as proxy, admin_client(proxy) as admin:
        await admin.post("/admin/pause")
        first = proxy.send()
        await eventually(lambda: proxy.service.admission.queued == 1)
        assert (await proxy.send()).json()["error"]["code"] == "paused"
        assert (await first).json()["error"]["code"] == "queue_timeout"


@pytest.mark.parametrize("kind", ["own", "uvicorn"])
async def test_pause_abort_ends_what_runs(kind):
    async with (
        running_proxy(kind=kind, cluster={"speed": Speed(decode_ms=50)}, **ADMIN) as proxy,
        admin_client(proxy) as admin,
    ):
        lines = []
        ended = asyncio.Event()

        async def stream():
            async with proxy.client.stream("POST", CHAT, json=chat(stream=True, max_tokens=500)) as response:
                async for line in response.aiter_lines():
                    lines.append(line)
            ended.set()

        task = asyncio.create_task(stream())
        whole = proxy.send(chat(max_tokens=500))
        await eventually(lambda: len(lines) > 2 and proxy.legs("generation") == 2)
        response = await admin.post("/admin/pause?mode=abort")
        assert response.json()["in_flight"] == 0
        answer = await whole
        assert answer.status_code == 503
        assert answer.headers["x-disagg-proxy-error"] == "proxy;aborted"
        await asyncio.wait_for(ended.wait(), 5)
        await task
        assert '"code":"aborted"' in [line for line in lines if line][-1]
        assert "data: [DONE]" not in lines
        proxy.assert_settled()


async def test_abort_during_the_context_leg_and_in_the_queue():
    async with running_proxy(max_inflight=1, **ADMIN) as proxy, admin_client(proxy) as admin:
        proxy.hold("context", count=1)
        running = proxy.send()
        await eventually(lambda: proxy.legs("context") == 1)
        waiting = proxy.send()
        await eventually(lambda: proxy.service.admission.queued == 1)
        await admin.post("/admin/pause?mode=abort")
        assert (await running).json()["error"]["code"] == "aborted"
        assert not waiting.done()  # it has cost nothing yet and goes on afterwards
        await admin.post("/admin/resume")
        assert (await waiting).status_code == 200


async def test_waiting_for_the_end_of_what_runs_can_be_limited():
    async with running_proxy(**ADMIN) as proxy, admin_client(proxy) as admin:
        proxy.hold("context", count=1)
        _, writer = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        response = await admin.post("/admin/pause?timeout=0.1")
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "pause_timeout"
        assert proxy.service.admission.paused
        writer.close()


async def test_a_caller_who_leaves_ends_the_waiting_not_the_pause():
    async with running_proxy(**ADMIN) as proxy:
        proxy.hold("context", count=1)
        _, running = await proxy.open(chat())
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        _, caller = await asyncio.open_connection("127.0.0.1", proxy.app.admin.port)
        caller.write(b"POST /admin/pause HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await eventually(lambda: proxy.service.admission.paused)
        await eventually(lambda: proxy.app.admin._state.tasks)
        caller.close()
        await eventually(lambda: not proxy.app.admin._state.tasks)
        assert proxy.service.admission.paused
        running.close()


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/admin/pause?mode=soon", "mode"),
        ("/admin/pause?mode=wait&mode=abort", "mode"),
        ("/admin/pause?timeout=-1", "timeout"),
        ("/admin/pause?timeout=inf", "timeout"),
        ("/admin/pause?force=1", "force"),
        ("/admin/resume?now", "now"),
    ],
)
async def test_wrong_parameters(path, param):
    async with running_proxy(**ADMIN) as proxy, admin_client(proxy) as admin:
        response = await admin.post(path)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param
        assert not proxy.service.admission.paused


async def test_other_routes_are_not_there():
    async with running_proxy(**ADMIN) as proxy, admin_client(proxy) as admin:
        assert (await admin.post(CHAT, json=chat())).status_code == 404
        assert (await admin.get("/admin/pause")).status_code == 405
        assert (await proxy.client.post("/admin/pause")).status_code == 404


async def test_drain_is_the_end():
    async with running_proxy(cluster=SLOW, **ADMIN) as proxy, admin_client(proxy) as admin:
        running = proxy.send()
        await eventually(lambda: proxy.service.admission.in_flight == 1)
        response = await admin.post("/admin/drain")
        assert (response.status_code, response.json()) == (202, {"draining": True})
        assert proxy.service.draining
        assert (await running).status_code == 200
        await asyncio.wait_for(proxy.serving, 5)


async def test_the_token(tmp_path):
    token = tmp_path / "token"
    token.write_text("let-me-in\n")
    async with running_proxy(admin_token_file=str(token), **ADMIN) as proxy, admin_client(proxy) as admin:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic let-me-in"}):
            response = await admin.post("/admin/pause", headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_admin_token"
            assert response.headers["www-authenticate"] == "Bearer"
        assert not proxy.service.admission.paused
        right = {"authorization": "Bearer let-me-in"}
        assert (await admin.get("/admin/status", headers=right)).status_code == 200


async def test_a_unix_socket(tmp_path):
    path = tmp_path / "admin.sock"
    async with running_proxy(admin_listen=f"unix:{path}") as proxy:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://admin") as admin:
            assert (await admin.post("/admin/pause")).status_code == 200
        assert proxy.service.admission.paused
    assert not path.exists()


async def test_a_socket_that_was_left_behind(tmp_path):
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with running_proxy(admin_listen=f"unix:{path}"):
        pass
