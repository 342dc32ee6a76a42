"""Workers that register in the cluster storage that the proxy serves."""

import os
import re
import time
from pathlib import Path

import pytest
from program import eventually
from registered_workers import INACTIVE, RegisteringProxy, RegisteringWorkers, RunProgram


@pytest.mark.parametrize("processes", [1, 2])
def test_workers_come_and_go(run_program: RunProgram, tmp_path: Path, processes: int) -> None:
    proxy = RegisteringProxy(run_program, tmp_path, processes, {"cluster_name": "c1"})
    assert proxy.complete() is None
    workers = RegisteringWorkers(run_program, proxy.uri, "--disagg_cluster_name", "c1")
    strangers = RegisteringWorkers(run_program, proxy.uri, "--disagg_cluster_name", "c10")

    proxy.wait_for(*workers.addresses)
    eventually(lambda: proxy.complete(), what="an answer")
    info = proxy.ask("/cluster_info")
    (context,) = info["current_workers"]["context_servers"]
    host, _, port = workers.addresses[0].rpartition(":")
    assert {**context, "worker_id": ""} == {"worker_id": "", "host": host, "port": int(port), "role": 0}
    assert re.fullmatch(rf"CONTEXT-{workers.addresses[0]}-\d{{13}}-\d+-\d{{3,4}}", context["worker_id"])
    assert [each["role"] for each in info["current_workers"]["generation_servers"]] == [1]
    assert info["minimal_instances"] == {"context_servers": 1, "generation_servers": 1}

    workers.crash()
    began = time.monotonic()
    proxy.wait_for()
    # The last heartbeat was at most half a second ago; the sweep comes once a second.
    assert time.monotonic() - began > INACTIVE - 1.5
    workers.restart()
    proxy.wait_for(*workers.addresses)
    eventually(lambda: proxy.complete(), what="an answer of the new processes")

    workers.leave()
    began = time.monotonic()
    proxy.wait_for()
    assert time.monotonic() - began < INACTIVE - 0.5, "they were told, not missed"
    strangers.leave()


def test_the_storage_outlives_a_process(run_program: RunProgram, tmp_path: Path) -> None:
    # A heartbeat may be in the process that is killed: the worker then registers again, which is refused as long as
    # half of the key's time has not passed, and asks once more 5 s later.
    inactive = 12
    proxy = RegisteringProxy(run_program, tmp_path, 2, {"inactive_timeout_sec": inactive})
    workers = RegisteringWorkers(run_program, proxy.uri, "--inactive_timeout_sec", str(inactive))
    proxy.wait_for(*workers.addresses)
    eventually(lambda: proxy.complete(), what="an answer")
    for index in (0, 1):
        pid = int(re.findall(rf"process {index} has started \(pid (\d+)\)", proxy.program.err)[-1])
        os.kill(pid, 9)
        eventually(
            lambda index=index: len(re.findall(rf"process {index} serves", proxy.program.err)) == 2,
            what="the successor",
        )
        proxy.wait_for(*workers.addresses)
    # The keys were not lost, and the heartbeats go on.
    assert "is draining" not in proxy.program.err
    time.sleep(inactive + 0.5)
    proxy.wait_for(*workers.addresses)
    assert "is draining" not in proxy.program.err
    assert proxy.complete()


def test_a_proxy_that_starts_again_is_told_again(run_program: RunProgram, tmp_path: Path) -> None:
    """What was in its memory is lost; the workers notice it at their next heartbeat."""
    proxy = RegisteringProxy(run_program, tmp_path, 1, {})
    workers = RegisteringWorkers(run_program, proxy.uri)
    proxy.wait_for(*workers.addresses)
    first = proxy.ask("/cluster_info")["current_workers"]
    proxy.program.stop()
    check = run_program("check", "-c", str(proxy.path))
    assert check.process.wait(30) == 1
    assert f"the proxy at {proxy.url} does not answer" in check.out
    proxy.program = run_program("serve", "-c", str(proxy.path))
    proxy.wait_for(*workers.addresses, seconds=40.0)
    assert proxy.ask("/cluster_info")["current_workers"] == first
    check = run_program("check", "-c", str(proxy.path))
    assert check.process.wait(30) == 0, check.out
    assert all(f"{address}  healthy" in check.out for address in workers.addresses)
