"""Workers come and go at an operator's word, under load, in all processes of a fleet."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fleet_control import CONTROL, Control
from fleet_load import Load
from fleet_stack import FleetStack
from program import eventually

StartFleet = Callable[..., FleetStack]


@contextmanager
def load_on(port: int) -> Iterator[Load]:
    """A load in a thread of its own; nothing of it may be lost."""
    load = Load(port)
    thread = threading.Thread(target=lambda: asyncio.run(load.run(32)))
    thread.start()
    try:
        yield load
    finally:
        load.stopping = True
        thread.join()
    assert set(load.statuses) == {200}
    assert load.lost == []


@pytest.mark.parametrize("processes", [1, 2])
def test_add_drain_and_remove_under_load(start_fleet: StartFleet, processes: int) -> None:
    fleet = start_fleet(processes, decode_ms=2.0, **CONTROL)
    fleet.wait_ready()
    first, second, spare = fleet.cluster.context_workers
    with Control(fleet) as control, load_on(fleet.port):
        eventually(lambda: first.legs["context"] > 20, what="the load")
        control.call("POST", "/workers", json={"url": f"http://{spare.address}", "role": "context"})
        eventually(lambda: spare.legs["context"] > 20, what="work for the new one")
        control.call("POST", f"/workers/{second.address}/drain")
        control.call("DELETE", f"/workers/{first.address}")

        def only_the_new_one_works() -> bool:
            workers = control.workers()
            drained = workers[f"http://{second.address}"]
            return f"http://{first.address}" not in workers and not drained["in_flight"]

        eventually(only_the_new_one_works, what="the end of the others' legs")
        before = first.legs["context"], second.legs["context"], spare.legs["context"]
        eventually(lambda: spare.legs["context"] > before[2] + 20, what="work")
        assert (first.legs["context"], second.legs["context"]) == before[:2]
        control.call("POST", f"/workers/{second.address}/resume")
        eventually(lambda: second.legs["context"] > before[1] + 20, what="work again")


def test_a_process_that_starts_again_knows_what_was_said(start_fleet: StartFleet) -> None:
    fleet = start_fleet(2, **CONTROL)
    fleet.wait_ready()
    first, second, spare = (f"http://{worker.address}" for worker in fleet.cluster.context_workers)
    with Control(fleet) as control:
        control.call("POST", "/workers", json={"url": spare, "role": "context", "labels": {"domain": "d"}})
        control.call("POST", f"/workers/{spare}/drain")
        control.call("DELETE", f"/workers/{first}")
        old = fleet.pids()[1]
        os.kill(old, signal.SIGKILL)
        eventually(lambda: fleet.pids()[1] != old, what="the successor")

        def all_agree() -> bool:
            answer = control.http.get("/workers")
            if answer.status_code != 200:
                return False  # the successor does not answer yet
            states = {each["url"]: each["state"] for each in answer.json()["workers"]}
            return states.get(second) == "ready" and first not in states and states.get(spare) == "draining"

        eventually(all_agree, what="agreement")
        assert control.workers()[spare]["labels"] == {"domain": "d"}
        # A word from before the restart can be taken back after it.
        control.call("POST", f"/workers/{spare}/resume")
        eventually(lambda: control.workers()[spare]["state"] == "ready", what="the return")


def test_whichever_process_of_the_public_port_is_asked(start_fleet: StartFleet, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("letmein\n")
    fleet = start_fleet(2, rl_control=True, rl_control_public=True, admin_token_file=str(token))
    fleet.wait_ready()
    first, second, _ = fleet.cluster.context_workers
    url = f"http://127.0.0.1:{fleet.port}/workers"
    headers = {"authorization": "Bearer letmein"}
    for _ in range(4):  # a connection of its own each: both processes get some
        assert httpx.get(url, trust_env=False).status_code == 401
        for worker in (first, second):
            drained = httpx.post(f"{url}/{worker.address}/drain", headers=headers, trust_env=False)
            assert drained.json()["workers"][0]["state"] == "draining"
        found = httpx.get(url, headers=headers, trust_env=False).json()["workers"]
        assert [each["state"] for each in found if each["role"] == "context"] == ["draining"] * 2
        for worker in (first, second):
            resumed = httpx.post(f"{url}/{worker.address}/resume", headers=headers, trust_env=False)
            assert resumed.json()["workers"][0]["state"] == "ready"
