import json
from types import SimpleNamespace
from typing import Any

import pytest

from proxy import __version__
from proxy.config.address import parse_worker_address
from proxy.config.disagg_cluster import DisaggCluster
from proxy.config.minimal_instances import MinimalInstances
from proxy.config.settings import Settings
from proxy.endpoints.answer import send_bytes, send_json
from proxy.endpoints.cluster import ClusterInfoEndpoint, VersionEndpoint
from proxy.endpoints.health import ReadyEndpoint, live
from proxy.endpoints.metrics import MetricsEndpoint
from proxy.telemetry.collector import ProxyCollector
from proxy.telemetry.exposition import Exposition
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.gauges import Gauges
from proxy.telemetry.names import Metric
from proxy.telemetry.series import Counter
from proxy.telemetry.shared import SharedMetrics
from proxy.workers.worker import Role


async def get(endpoint: Any, *headers: tuple[bytes, bytes]) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await endpoint({"headers": list(headers)}, None, send)
    start, body = sent
    assert body["more_body"] is False
    told = dict(start["headers"])
    assert told[b"content-length"] == b"%d" % len(body["body"])
    return start["status"], told, body["body"]


def service(*, ready: bool = True, cluster: DisaggCluster | None = None) -> Any:
    def worker(url: str, role: Role, *, leaving: bool = False, **labels: str) -> Any:
        return SimpleNamespace(address=parse_worker_address(url), role=role, leaving=leaving, labels=labels)

    workers = {
        Role.CONTEXT: [
            worker("c:1", Role.CONTEXT, worker_id="CONTEXT-c:1-1764430000000-4242-017"),
            worker("https://c:2", Role.CONTEXT, leaving=True),
        ],
        Role.GENERATION: [worker("[::1]:3", Role.GENERATION)],
    }
    registry = SimpleNamespace(of_role=workers.__getitem__, version="1.2.0")
    return SimpleNamespace(ready=ready, registry=registry, settings=Settings(disagg_cluster=cluster))


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
async def test_ready(ready: bool, status: int) -> None:
    assert await get(ReadyEndpoint(service(ready=ready))) == (status, {b"content-length": b"0"}, b"")


async def test_live() -> None:
    assert (await get(live))[0] == 200


async def test_cluster_info_has_upstreams_shape() -> None:
    status, headers, body = await get(ClusterInfoEndpoint(service()))
    assert (status, headers[b"content-type"]) == (200, b"application/json")
    assert json.loads(body) == {
        "is_ready": True,
        "server_lists": {"context": ["c:1", "https://c:2"], "generation": ["[::1]:3"]},
    }


async def test_cluster_info_of_workers_that_register() -> None:
    cluster = DisaggCluster("http://proxy:8000", minimal_instances=MinimalInstances(1, 2))
    _, _, body = await get(ClusterInfoEndpoint(service(cluster=cluster)))
    info = json.loads(body)
    assert info["current_workers"] == {
        "context_servers": [
            {"worker_id": "CONTEXT-c:1-1764430000000-4242-017", "host": "c", "port": 1, "role": 0}
        ],
        "generation_servers": [{"worker_id": "", "host": "::1", "port": 3, "role": 1}],
    }
    assert info["minimal_instances"] == {"context_servers": 1, "generation_servers": 2}


async def test_version() -> None:
    assert json.loads((await get(VersionEndpoint(service())))[2]) == {
        "version": "1.2.0",
        "proxy": __version__,
    }


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (b"", b"text/plain"),
        (b"text/plain", b"text/plain"),
        (b"application/openmetrics-text", b"application/openmetrics"),
    ],
)
async def test_metrics_in_the_format_that_is_asked_for(accept: bytes, content_type: bytes) -> None:
    memory = SharedMetrics.private()
    things = Metric("things", "Things.")
    Counter(memory.rows[0], things).add()
    collector = ProxyCollector(FleetView(memory), lambda: None, (things,))
    endpoint = MetricsEndpoint(Exposition(collector, Gauges(memory.rows[0], ())))
    status, headers, body = await get(endpoint, (b"accept", accept))
    assert status == 200
    assert headers[b"content-type"].startswith(content_type)
    assert b"things_total 1.0" in body


async def test_answers() -> None:
    async def text(scope: Any, receive: Any, send: Any) -> None:
        await send_bytes(send, 418, b"tea", b"text/plain")

    async def value(scope: Any, receive: Any, send: Any) -> None:
        await send_json(send, 201, {"a": "€"})

    assert await get(text) == (418, {b"content-length": b"3", b"content-type": b"text/plain"}, b"tea")
    status, headers, body = await get(value)
    assert (status, headers[b"content-type"], json.loads(body)) == (201, b"application/json", {"a": "€"})
