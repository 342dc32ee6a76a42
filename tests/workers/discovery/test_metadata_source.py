"""The metadata server of `trtllm-serve` (`-m`): a real etcd, simulated workers."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from etcd_server import EtcdServer, needs_etcd
from free_port import free_port
from program import Program, eventually
from registered_workers import RunProgram, ask

from proxy.config.listed_worker import ListedWorker
from proxy.config.settings import ProxySettings
from proxy.sim import SimCluster, ThreadedSimCluster
from proxy.upstream.access import WorkerAccess
from proxy.workers.discovery.etcd_client import EtcdAccess
from proxy.workers.discovery.metadata import MetadataSource
from proxy.workers.discovery.source import SourceLost

pytestmark = needs_etcd

SECONDS = 30.0


@pytest.fixture
async def workers() -> AsyncIterator[SimCluster]:
    async with SimCluster(1, 1) as cluster:
        yield cluster


def source_of(etcd: EtcdServer, **options: Any) -> MetadataSource:
    given = {"refresh_interval": 0.05, "health_check_timeout": 5.0, **options}
    return MetadataSource(EtcdAccess((etcd.url,)), WorkerAccess(ProxySettings()), **given)


def metadata(url: str, role: str | None, **fields: Any) -> str:
    """As the workers write it."""
    return json.dumps(
        {
            "model": "/models/sim",
            "version": "1.0",
            "timestamp": "2026-08-01T12:00:00",
            "server_role": role,
            "url": url,
            **fields,
        }
    )


def put_all(etcd: EtcdServer, workers: SimCluster | ThreadedSimCluster) -> None:
    for role in ("context", "generation"):
        for worker in getattr(workers, f"{role}_workers"):
            etcd.put(f"trtllm/{worker.name}", metadata(worker.url, role.upper()))


def told(listed: Sequence[ListedWorker]) -> list[tuple[str, str]]:
    return [(worker.role, worker.address.text) for worker in listed]


async def until(changes: AsyncGenerator[Sequence[ListedWorker], None], *wanted: tuple[str, str]) -> None:
    async with asyncio.timeout(SECONDS):
        async for listed in changes:
            if told(listed) == list(wanted):
                return


async def test_workers_of_both_roles(etcd: EtcdServer, workers: SimCluster) -> None:
    put_all(etcd, workers)
    (context,), (generation,) = workers.context_urls, workers.generation_urls
    async with aclosing(source_of(etcd).changes()) as changes:
        assert told(await anext(changes)) == [("context", context), ("generation", generation)]
        etcd.delete("trtllm/context-0")
        await until(changes, ("generation", generation))


async def test_who_does_not_answer_is_left_out_until_it_does(etcd: EtcdServer, workers: SimCluster) -> None:
    """The key of a worker that crashed stays: nobody but the worker itself can write it again."""
    put_all(etcd, workers)
    both = [("context", workers.context_urls[0]), ("generation", workers.generation_urls[0])]
    async with aclosing(source_of(etcd).changes()) as changes:
        await until(changes, *both)
        workers.worker("context-0").add_fault(kind="status", status=503, route="health")
        await until(changes, both[1])
        workers.worker("context-0").clear_faults()
        await until(changes, *both)
        await workers.worker("generation-0").refuse()
        await until(changes, both[0])
        await workers.worker("generation-0").accept()
        await until(changes, *both)
    assert len(etcd.keys("trtllm/")) == 2


async def test_one_failed_attempt_is_forgiven(etcd: EtcdServer, workers: SimCluster) -> None:
    put_all(etcd, workers)
    for worker in workers.workers:
        worker.add_fault(kind="status", status=503, route="health", count=1)
    async with aclosing(source_of(etcd).changes()) as changes:
        assert len(await anext(changes)) == 2


async def test_a_worker_that_hangs_is_waited_for_twice_the_time_out(
    etcd: EtcdServer, workers: SimCluster
) -> None:
    put_all(etcd, workers)
    workers.worker("context-0").add_fault(kind="hang", route="health")
    async with aclosing(source_of(etcd, health_check_timeout=0.3).changes()) as changes:
        assert told(await anext(changes)) == [("generation", workers.generation_urls[0])]


async def test_what_is_none_of_ours(
    etcd: EtcdServer, workers: SimCluster, caplog: pytest.LogCaptureFixture
) -> None:
    (url,) = workers.context_urls
    etcd.put("trtllm/no-role", metadata(f"http://{url}", None))
    etcd.put("trtllm/other-role", metadata(f"http://{url}", "MM_ENCODER"))
    etcd.put("trtllmx/1", metadata(f"http://{url}", "CONTEXT"))
    etcd.put("trtllm/bad-json", "{")
    etcd.put("trtllm/bad-url", metadata("grpc://x:1", "CONTEXT"))
    etcd.put("trtllm/fine", metadata(f"http://{url}", "CONTEXT"))
    with caplog.at_level(logging.ERROR, "proxy.discovery"):
        async with aclosing(source_of(etcd).changes()) as changes:
            for _ in range(3):
                assert told(await anext(changes)) == [("context", url)]
    assert sorted(record.args[0] for record in caplog.records) == ["trtllm/bad-json", "trtllm/bad-url"]


async def test_an_outage(etcd: EtcdServer, workers: SimCluster) -> None:
    put_all(etcd, workers)
    source = source_of(etcd)
    async with aclosing(source.changes()) as changes:
        assert len(await anext(changes)) == 2
        etcd.stop()
        with pytest.raises(SourceLost, match=etcd.url):
            await anext(changes)
    await asyncio.to_thread(etcd.start)
    async with aclosing(source.changes()) as changes:
        assert len(await anext(changes)) == 2


def test_the_option(etcd: EtcdServer, run_program: RunProgram, tmp_path: Path) -> None:
    (tmp_path / "etcd.yaml").write_text(
        f"{{server_type: etcd, hostname: 127.0.0.1, port: {etcd.port}, refresh_interval: 0.2}}"
    )
    (tmp_path / "disagg.yaml").write_text("{hostname: 127.0.0.1, proxy: {drain_grace: 0}}")
    port = free_port()
    arguments = ("-c", str(tmp_path / "disagg.yaml"), "-m", str(tmp_path / "etcd.yaml"), "--port", str(port))
    proxy: Program = run_program("serve", *arguments)
    proxy.wait_for("running on http")
    with ThreadedSimCluster(1, 1) as cluster:
        put_all(etcd, cluster)
        body = {"model": "sim", "prompt": "hello", "max_tokens": 4}
        answer = eventually(lambda: ask(f"http://127.0.0.1:{port}/v1/completions", body), what="an answer")
        assert answer["choices"][0]["finish_reason"] == "length"
        check = run_program("check", *arguments)
        check.process.wait(20)
        assert check.process.returncode == 0, check.out
        assert "metadata_server" in check.out
