"""Draining and resuming single workers, in one process."""

import httpx
import pytest
from running_proxy import eventually, running_proxy

TWO = {"context": 2, "generation": 2}
ADMIN = {"admin_listen": "127.0.0.1:0"}


def admin_client(proxy, **options):
    return httpx.AsyncClient(base_url=proxy.admin_url, timeout=10, trust_env=False, **options)


async def test_a_drained_worker_receives_nothing_until_it_is_resumed() -> None:
    async with running_proxy(cluster=TWO, **ADMIN) as proxy, admin_client(proxy) as admin:
        await eventually(lambda: all(worker.ready for worker in proxy.service.registry.workers))
        worker = proxy.cluster.context_workers[0]
        named = {"workers": [worker.address]}
        answer = await admin.post("/admin/workers/drain", json=named)
        assert (answer.status_code, answer.json()) == (200, {"draining": [worker.address]})
        before = worker.legs.total()
        for _ in range(6):
            assert (await proxy.send()).status_code == 200
        assert worker.legs.total() == before
        again = await admin.post("/admin/workers/drain", json=named)
        assert again.json() == {"draining": [worker.address]}
        answer = await admin.post("/admin/workers/resume", json=named)
        assert (answer.status_code, answer.json()) == (200, {"listed": [worker.address]})
        for _ in range(6):
            assert (await proxy.send()).status_code == 200
        assert worker.legs.total() > before


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b'{"workers": ["nobody:1"]}', "application/json", 404, "worker_not_found"),
        (b'{"workers": ["no address"]}', "application/json", 400, "invalid_value"),
        (b'{"workers": "a:1"}', "application/json", 400, "invalid_value"),
        (b'{"workers": [], "force": true}', "application/json; charset=utf-8", 400, "invalid_value"),
        (b"{", "application/json", 400, "invalid_value"),
        (b'{"workers": []}', "text/plain", 415, "unsupported_media_type"),
    ],
)
@pytest.mark.parametrize("action", ["drain", "resume"])
async def test_refused(action: str, content: bytes, kind: str, status: int, code: str) -> None:
    async with running_proxy(**ADMIN) as proxy, admin_client(proxy) as admin:
        answer = await admin.post(f"/admin/workers/{action}", content=content, headers={"content-type": kind})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert all(worker.ready for worker in proxy.service.registry.workers)
