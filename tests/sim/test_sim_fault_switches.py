"""Fault switches themselves, and those that act on the whole worker."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from sim_client import Client, completion, eventually, raw_connection

from proxy.sim import Fault, SimCluster, faults
from proxy.sim.faults import KINDS, FaultBoard, as_fault, read_faults


def test_switches_are_used_up() -> None:
    board = FaultBoard([{"kind": "status", "count": 2, "skip": 1}, {"kind": "cut", "leg": "context"}])
    kinds = [[fault.kind for fault in board.take_answer("inference", leg)] for leg in ("generation",) * 4]
    assert kinds == [[], ["status"], ["status"], []]
    assert [fault.kind for fault in board.take_answer("inference", "context")] == ["cut"]
    assert board.take_answer("health", None) == ()
    assert board.has("cut")
    board.clear("cut")
    assert not board.faults


def test_each_switch_has_its_own_count() -> None:
    fault = Fault(kind="reset", count=1)
    first, second = FaultBoard([fault]), FaultBoard([fault])
    assert first.take_answer("inference", None)
    assert second.take_answer("inference", None)


@pytest.mark.parametrize(
    "bad", [{"kind": "nonsense"}, {}, {"kind": "cut", "often": 1}, {"kind": "cut", "count": "x"}]
)
def test_switches_are_strict(bad: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        as_fault(bad)


def test_switches_from_json() -> None:
    assert [fault.kind for fault in read_faults(b'[{"kind": "cut"}, {"kind": "stall"}]')] == ["cut", "stall"]
    assert [fault.kind for fault in read_faults(b'{"kind": "cut"}')] == ["cut"]


async def test_health_lies_both_ways(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="status", route="health")
    assert (await client.get(worker, "/health")).status_code == 503
    assert (await client.post(worker, completion())).status_code == 200
    worker.clear_faults()
    worker.add_fault(kind="status")
    assert (await client.get(worker, "/health")).status_code == 200
    assert (await client.post(worker, completion())).status_code == 503


async def test_starting(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    worker.add_fault(kind="starting")
    for path in ("/health", "/server_info", "/nowhere"):
        response = await client.get(worker, path)
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert response.headers["x-trtllm-server-state"] == "starting"
        assert response.json()["error"]["code"] == "starting"
    assert (await client.post(worker, completion())).status_code == 503
    worker.clear_faults()
    assert (await client.get(worker, "/health")).status_code == 200


async def test_starting_ends_by_itself(client: Client) -> None:
    async with SimCluster(1, 0, faults=({"kind": "starting", "seconds": 0.5},)) as cluster:
        assert (await client.get(cluster.context_workers[0], "/health")).status_code == 503
        await asyncio.sleep(0.6)
        assert (await client.get(cluster.context_workers[0], "/health")).status_code == 200


async def test_refuse_and_come_back_at_the_same_address(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    address = worker.address
    async with raw_connection(worker) as (reader, _):
        await worker.refuse()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            async with raw_connection(worker):
                pass
    await worker.accept()
    assert worker.address == address
    assert (await client.get(worker, "/health")).status_code == 200


async def test_refuse_over_http_through_a_sibling(cluster: SimCluster, client: Client) -> None:
    target, other = cluster.context_workers[0], cluster.generation_workers[0]
    response = await client.http.post(
        other.url + "/sim/faults", params={"worker": target.name}, json={"kind": "refuse"}
    )
    assert response.status_code == 200
    await eventually(lambda: not cluster.kv.held_ids() and target._listener and not target._listener.is_open)
    with pytest.raises(httpx.ConnectError):
        await client.get(target, "/health")
    await client.http.delete(other.url + "/sim/faults", params={"worker": target.name})
    assert (await client.get(target, "/health")).status_code == 200
    itself = await client.http.post(target.url + "/sim/faults", json={"kind": "refuse", "seconds": 0.5})
    assert itself.status_code == 200
    await eventually(lambda: target._listener and not target._listener.is_open)
    await eventually(lambda: target._listener and target._listener.is_open)


async def test_refuse_from_the_start_for_a_while(client: Client) -> None:
    async with SimCluster(1, 0, faults=({"kind": "refuse", "seconds": 0.5},)) as cluster:
        with pytest.raises(httpx.ConnectError):
            await client.get(cluster.context_workers[0], "/health")
        await asyncio.sleep(0.6)
        assert (await client.get(cluster.context_workers[0], "/health")).status_code == 200


async def test_switches_over_http(cluster: SimCluster, client: Client) -> None:
    worker = cluster.context_workers[0]
    url = worker.url + "/sim/faults"
    added = await client.http.post(
        url, json=[{"kind": "status", "status": 502, "count": 1}, {"kind": "close"}]
    )
    assert [fault["kind"] for fault in added.json()] == ["status", "close"]
    response = await client.post(worker, completion())
    assert (response.status_code, response.headers["connection"]) == (502, "close")
    assert [fault["kind"] for fault in (await client.http.get(url)).json()] == ["close"]
    assert (await client.http.delete(url, params={"kind": "status"})).json()
    assert (await client.http.delete(url)).json() == []
    assert (await client.http.post(url, json={"kind": "nonsense"})).status_code == 400
    assert (await client.http.post(url, content=b"{")).status_code == 400


def test_the_readme_lists_the_kinds() -> None:
    text = Path(faults.__file__).with_name("README.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{kind}` | {what} |" for kind, (_, what) in KINDS.items()]
