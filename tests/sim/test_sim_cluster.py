"""Clusters in a loop, in a thread, in another process, and on Unix sockets."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from free_port import free_port
from sim_client import Client, chat, completion, context_body, eventually, generation_body

from proxy.sim import SimCluster, Speed, ThreadedSimCluster, WorkerSettings, expected_text


async def test_addresses_and_names() -> None:
    async with SimCluster(2, 3) as cluster:
        assert len(set(cluster.context_urls + cluster.generation_urls)) == 5
        assert all(url.startswith("127.0.0.1:") for url in cluster.context_urls)
        names = [worker.name for worker in cluster.workers]
        assert names == ["context-0", "context-1", "generation-0", "generation-1", "generation-2"]
        assert cluster.worker("context-1") is cluster.context_workers[1]
        assert cluster.worker(cluster.generation_urls[2]) is cluster.generation_workers[2]
        with pytest.raises(KeyError):
            cluster.worker("x")
        assert set(cluster.stats()) == set(names)


async def test_ports_follow_the_base_port() -> None:
    base = free_port(neighbours=1)
    async with SimCluster(1, 1, base) as cluster:
        assert cluster.context_urls == [f"127.0.0.1:{base}"]
        assert cluster.generation_urls == [f"127.0.0.1:{base + 1}"]
        with pytest.raises(OSError, match="in use"):
            async with SimCluster(1, 1, base):
                pass


async def test_unknown_settings_are_refused() -> None:
    with pytest.raises(TypeError):
        SimCluster(1, 1, speeed=Speed())


async def test_nothing_is_left_behind(client: Client) -> None:
    before = len(asyncio.all_tasks())
    async with SimCluster(1, 1, settings=WorkerSettings(speed=Speed(decode_ms=50))) as cluster:
        worker = cluster.generation_workers[0]
        body = completion(max_tokens=500, ignore_eos=True, stream=True)
        running = asyncio.create_task(client.post(worker, body))
        await eventually(lambda: worker.engine.running == 1)
        await cluster.stop()
        with pytest.raises(httpx.TransportError):
            await running
    assert len(asyncio.all_tasks()) == before


async def test_unix_sockets(tmp_path: Path) -> None:
    async with SimCluster(1, 1, unix_directory=tmp_path) as cluster:
        assert cluster.context_urls == [f"unix:{tmp_path}/context-0.sock"]
        answers = []
        for worker, body in ((0, context_body(completion())), (1, None)):
            transport = httpx.AsyncHTTPTransport(uds=cluster.workers[worker].address.removeprefix("unix:"))
            async with httpx.AsyncClient(transport=transport, base_url="http://sim") as http:
                sent = body or generation_body(completion(), answers[0])
                answers.append((await http.post("/v1/completions", json=sent)).json())
        assert answers[1]["choices"][0]["text"] == expected_text(completion())
        cluster.context_workers[0].add_fault(kind="reset", count=1)
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/context-0.sock")
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        assert await reader.read() == b""
        writer.close()
        await cluster.context_workers[0].refuse()
        with pytest.raises(FileNotFoundError):
            await asyncio.open_unix_connection(f"{tmp_path}/context-0.sock")
    assert list(tmp_path.iterdir()) == []


async def test_kv_of_another_process_is_reached_over_http(client: Client) -> None:
    # Two registries that know nothing of each other stand for two processes.
    async with SimCluster(1, 0, name_prefix="left-") as left, SimCluster(0, 1, name_prefix="right-") as right:
        context, generation = left.context_workers[0], right.generation_workers[0]
        response = await client.both(context, generation, chat())
        assert response.json()["choices"][0]["message"]["content"] == expected_text(chat())
        assert left.kv.counts().taken == 1
        body = generation_body(completion(), await client.context(context, completion()))
        assert (await client.post(generation, body)).status_code == 200
        again = await client.post(generation, body)
        assert again.status_code == 400
        assert "no KV cache" in again.json()["message"]
        fresh = generation_body(completion(), await client.context(context, completion()))
        await context.refuse()
        gone = await client.post(generation, fresh)
        assert gone.status_code == 400
        assert "cannot be reached" in gone.json()["message"]


async def test_kv_is_reached_although_an_idle_connection_ends(client: Client) -> None:
    async with SimCluster(1, 0, name_prefix="left-") as left, SimCluster(0, 1, name_prefix="right-") as right:
        context, generation = left.context_workers[0], right.generation_workers[0]
        for fault in (False, True):
            body = generation_body(completion(), await client.context(context, completion()))
            if fault:
                context.add_fault(kind="reset_reused", count=1)
            assert (await client.post(generation, body)).status_code == 200
        assert not context.board.faults


async def test_generation_first_over_http(client: Client) -> None:
    async with SimCluster(1, 0, name_prefix="left-") as left, SimCluster(0, 1, name_prefix="right-") as right:
        info = (await client.get(left.context_workers[0], "/server_info")).json()["disaggregated_params"]
        shared = {"disagg_request_id": 5, "schedule_style": 1}
        asked = {
            "request_type": "generation_only",
            **shared,
            "ctx_info_endpoint": info["ctx_info_endpoint"][0],
        }
        results = await asyncio.gather(
            client.post(right.generation_workers[0], completion(disaggregated_params=asked)),
            client.post(left.context_workers[0], context_body(completion(), request_id=5, schedule_style=1)),
        )
        assert [result.status_code for result in results] == [200, 200]
        assert left.kv.counts().refused == 0


def test_threaded_cluster() -> None:
    threads = threading.active_count()
    with ThreadedSimCluster(1, 1, speed=Speed(decode_ms=1)) as cluster:
        with httpx.Client(trust_env=False) as http:
            url = f"http://{cluster.generation_urls[0]}/v1/completions"
            assert http.post(url, json=completion()).json()["choices"][0]["text"] == expected_text(
                completion()
            )
            cluster.worker("generation-0").add_fault(kind="status", status=418, count=1)
            assert http.post(url, json=completion()).status_code == 418
            cluster.call(cluster.worker("generation-0").refuse())
            with pytest.raises(httpx.TransportError):
                http.post(url, json=completion())
            cluster.call(cluster.worker("generation-0").accept())
            assert http.post(url, json=completion()).status_code == 200
        assert cluster.stats()["generation-0"]["requests"]["total"] == 3
        assert len(cluster.workers) == len(cluster.context_workers) + len(cluster.generation_workers) == 2
        assert cluster.kv.leftover == 0
        assert cluster.context_urls[0]
        cluster.stop()
    assert threading.active_count() == threads


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command(number: signal.Signals) -> None:
    fault = '{"kind": "status", "status": 418, "count": 1, "leg": "generation"}'
    command = [
        sys.executable,
        "-m",
        "proxy.sim.command",
        "--context",
        "1",
        "--generation",
        "1",
        "--base-port",
        "0",
    ]
    process = subprocess.Popen(
        [*command, "--fault", fault, "--profile", "new"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(2)]
        assert [line[:3] for line in lines] == [["context-0", "ready", "at"], ["generation-0", "ready", "at"]]
        context, generation = (f"http://{line[3]}/v1/completions" for line in lines)
        with httpx.Client(trust_env=False) as http:
            body = generation_body(completion(), http.post(context, json=context_body(completion())).json())
            assert http.post(generation, json=body).status_code == 418
            assert http.post(generation, json=body).json()["choices"][0]["text"] == expected_text(
                completion()
            )
        started = time.monotonic()
        process.send_signal(number)
        assert process.wait(5) == 0
        assert time.monotonic() - started < 3
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_command_mistakes() -> None:
    command = [sys.executable, "-m", "proxy.sim.command"]
    done = subprocess.run([*command, "--fault", '{"kind": "x"}'], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert "unknown fault" in done.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run([*command, "--base-port", port], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "cannot start" in done.stderr
