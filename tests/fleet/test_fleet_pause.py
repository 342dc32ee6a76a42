"""Pause, resume and limits hold for all processes of a fleet."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
from fleet_stack import FleetStack
from program import eventually

BODY = {"model": "sim", "prompt": "once", "max_tokens": 20}
PROCESSES = 2


class Admin:
    """The admin listener of a fleet."""

    def __init__(self, stack: FleetStack) -> None:
        port = stack.program.wait_for(r"admin routes on 127\.0\.0\.1 port (\d+)")[1]
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False)

    def __enter__(self) -> "Admin":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def post(self, path: str) -> httpx.Response:
        return self._client.post(path)

    def status(self) -> dict[str, Any]:
        answer = self._client.get("/admin/status")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def complete(stack: FleetStack, **body: Any) -> httpx.Response:
    """One request on a connection of its own, so that any process may get it."""
    with httpx.Client(timeout=20, trust_env=False) as client:
        return client.post(f"http://127.0.0.1:{stack.port}/v1/completions", json={**BODY, **body})


def test_pause_and_resume(start_fleet):
    stack = start_fleet(PROCESSES, admin_listen="127.0.0.1:0", decode_ms=5.0)
    stack.wait_ready()
    with ExitStack() as ends:
        pool = ends.enter_context(ThreadPoolExecutor(16))
        admin = ends.enter_context(Admin(stack))
        running = [pool.submit(complete, stack) for _ in range(8)]
        state = admin.post("/admin/pause").json()
        assert (state["paused"], state["in_flight"]) == (True, 0)
        waiting = [pool.submit(complete, stack) for _ in range(8)]
        eventually(lambda: admin.status()["queued"] >= 8, what="the queue")
        status = admin.status()
        assert status["in_flight"] == 0
        assert [process["process"] for process in status["processes"]] == [0, 1]
        assert all(process["paused"] for process in status["processes"])
        assert admin.post("/admin/resume").json()["paused"] is False
        assert {task.result().status_code for task in (*running, *waiting)} == {200}
        eventually(lambda: admin.status()["in_flight"] == 0, what="the end")


def test_abort(start_fleet):
    stack = start_fleet(PROCESSES, admin_listen="127.0.0.1:0", decode_ms=100.0)
    stack.wait_ready()
    with ExitStack() as ends:
        pool = ends.enter_context(ThreadPoolExecutor(8))
        admin = ends.enter_context(Admin(stack))
        running = [pool.submit(complete, stack, max_tokens=1000) for _ in range(8)]
        eventually(lambda: admin.status()["in_flight"] == 8, what="all requests")
        assert admin.post("/admin/pause?mode=abort").json()["in_flight"] == 0
        answers = [task.result() for task in running]
        assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {
            (503, "aborted")
        }


def test_a_new_process_begins_paused(start_fleet):
    stack = start_fleet(PROCESSES, admin_listen="127.0.0.1:0")
    stack.wait_ready()
    with Admin(stack) as admin:
        admin.post("/admin/pause")
        victim = stack.pids()[1]
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: stack.pids()[1] != victim, what="a new process")
        eventually(
            lambda: [each.get("paused") for each in admin.status()["processes"]] == [True, True],
            what="the pause",
        )


def test_the_limit_is_that_of_the_fleet(start_fleet):
    limit = 3
    stack = start_fleet(PROCESSES, admin_listen="127.0.0.1:0", decode_ms=5.0, max_inflight=limit)
    stack.wait_ready()
    with ExitStack() as ends:
        pool = ends.enter_context(ThreadPoolExecutor(24))
        admin = ends.enter_context(Admin(stack))
        tasks = [pool.submit(complete, stack) for _ in range(24)]
        seen = []
        while not all(task.done() for task in tasks):
            seen.append(admin.status()["in_flight"])
        assert {task.result().status_code for task in tasks} == {200}
        # The overshoot is at most one per process.
        assert max(seen) <= limit + PROCESSES
        assert max(seen) >= limit - 1
        # A request is settled just after its answer.
        eventually(lambda: admin.status()["in_flight"] == 0, what="nothing in flight")
        assert admin.status()["queued"] == 0


def test_drain_ends_the_fleet(start_fleet):
    stack = start_fleet(PROCESSES, admin_listen="127.0.0.1:0")
    stack.wait_ready()
    with Admin(stack) as admin:
        assert admin.post("/admin/drain").status_code == 202
    assert stack.program.wait() == 0
