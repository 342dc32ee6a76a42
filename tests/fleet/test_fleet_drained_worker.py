"""A worker that an operator drains is drained in every process, those that start later included."""

import os
import signal

import httpx
from fleet_stack import FleetStack
from program import eventually
from test_fleet_pause import Admin, complete


def served_by(stack: FleetStack, count: int) -> None:
    for _ in range(count):  # a connection of its own each: both processes get some
        assert complete(stack, max_tokens=1).status_code == 200


def order(admin: Admin, action: str, address: str) -> httpx.Response:
    return admin._client.post(f"/admin/workers/{action}", json={"workers": [address]})


def test_the_whole_fleet_drains_a_worker(start_fleet):
    stack = start_fleet(2, admin_listen="127.0.0.1:0")
    stack.wait_ready()
    worker = stack.cluster.context_workers[0]
    with Admin(stack) as admin:
        assert order(admin, "drain", worker.address).json() == {"draining": [worker.address]}
        before = worker.legs.total()
        served_by(stack, 12)
        assert worker.legs.total() == before
        # The other process dies; its successor learns of the order before it serves.
        killed = stack.pids()[1]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: len(stack.pids()) == 2 and stack.pids()[1] != killed, what="the successor")
        stack.wait_ready()
        served_by(stack, 12)
        assert worker.legs.total() == before
        assert order(admin, "resume", worker.address).json() == {"listed": [worker.address]}

        def used() -> bool:
            served_by(stack, 4)
            return worker.legs.total() > before

        eventually(used, what="its return")
