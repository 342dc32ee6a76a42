"""Who may register in the cluster storage that the proxy serves."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from registered_workers import serving

CLUSTER = {"cluster_uri": "http://127.0.0.1:8000"}
WORKER = {"key": "/trtllm-disagg//workers/w", "value": "v"}


async def register(url: str, *, key: str | None = None) -> httpx.Response:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, trust_env=False, headers=headers) as client:
        return await client.post("/set", json=WORKER)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "keys").write_text("somebody:client-key\n")
    (tmp_path / "storage").write_text("storage-key\n")
    return {"api_keys_file": str(tmp_path / "keys"), "cluster_storage_key_file": str(tmp_path / "storage")}


@pytest.mark.parametrize(
    ("given", "statuses"),
    [
        ([], {None: 200, "storage-key": 200}),
        (["cluster_storage_key_file"], {None: 403, "wrong": 403, "storage-key": 200}),
        (["api_keys_file"], {None: 401, "storage-key": 401, "client-key": 200}),
        (
            ["api_keys_file", "cluster_storage_key_file"],
            {None: 403, "client-key": 403, "storage-key": 200},
        ),
    ],
)
async def test_keys(files: dict[str, str], given: list[str], statuses: dict[str | None, int]) -> None:
    keys: dict[str, Any] = {name: files[name] for name in given}
    for key, status in statuses.items():
        async with serving(disagg_cluster=CLUSTER, **keys) as (_, url):
            answer = await register(url, key=key)
            assert answer.status_code == status, key
            if status != 200:
                assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
                assert "storage-key" not in answer.text


async def test_a_storage_key_opens_nothing_else(files: dict[str, str]) -> None:
    async with serving(disagg_cluster=CLUSTER, **files) as (_, url):
        headers = {"authorization": "Bearer storage-key"}
        async with httpx.AsyncClient(base_url=url, trust_env=False, headers=headers) as client:
            assert (await client.get("/v1/models")).status_code == 401


@pytest.mark.parametrize("cluster", [None, {"cluster_uri": "etcd://127.0.0.1:1"}])
async def test_a_proxy_without_a_storage_has_no_such_routes(cluster: dict[str, str] | None) -> None:
    async with serving(disagg_cluster=cluster) as (_, url):
        assert (await register(url)).status_code == 404
