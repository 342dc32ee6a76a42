"""Requests are aborted by their ids in whichever process they run; calls to workers are made once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from fleet_control import CONTROL, Control
from fleet_stack import FleetStack
from program import eventually

REQUESTS = 8


def complete(fleet: FleetStack, name: str) -> httpx.Response:
    """One long request on a connection of its own, so that any process may get it."""
    body = {"model": "sim", "prompt": "once", "max_tokens": 2000, "ignore_eos": True}
    with httpx.Client(timeout=60, trust_env=False) as client:
        url = f"http://127.0.0.1:{fleet.port}/v1/completions"
        return client.post(url, json=body, headers={"x-request-id": name})


@pytest.mark.parametrize("processes", [1, 2])
def test_abort_by_id(start_fleet: Callable[..., FleetStack], processes: int) -> None:
    fleet = start_fleet(processes, decode_ms=100.0, **CONTROL)
    fleet.wait_ready()
    with ExitStack() as ends:
        pool = ends.enter_context(ThreadPoolExecutor(REQUESTS))
        control = ends.enter_context(Control(fleet))
        running = {f"r{number}": pool.submit(complete, fleet, f"r{number}") for number in range(REQUESTS)}
        eventually(lambda: control.call("GET", "/pause")["in_flight"] == REQUESTS, what="all requests")
        for number, (name, task) in enumerate(running.items(), 1):
            assert control.call("POST", "/abort_request", json={"rid": name}) == {"aborted": 1}
            assert task.result(timeout=20).status_code == 410
            assert sum(each.done() for each in running.values()) == number
        eventually(lambda: control.call("GET", "/v1/loads")["aggregate"]["total_reqs"] == 0, what="no load")
        again = [pool.submit(complete, fleet, f"s{number}") for number in range(REQUESTS)]
        eventually(lambda: control.call("GET", "/pause")["in_flight"] == REQUESTS, what="all requests")
        assert control.call("POST", "/abort_request", json={"abort_all": True}) == {"aborted": REQUESTS}
        assert {task.result(timeout=20).status_code for task in again} == {410}


def test_an_update_of_weights_reaches_each_worker_once(start_fleet: Callable[..., FleetStack]) -> None:
    fleet = start_fleet(2, workers={"rl_control": True}, **CONTROL)
    fleet.wait_ready()
    failing = fleet.cluster.generation_workers[1]
    failing.add_fault(kind="reset", route="rl_control")
    with Control(fleet) as control:
        answer = control.http.post("/update_weights", json={"weights": {}})
    assert answer.status_code == 207
    results = answer.json()["results"]
    assert {url for url, result in results.items() if "error" in result} == {f"http://{failing.address}"}
    calls = [len(worker.control_calls) for worker in fleet.cluster.workers]
    assert calls == [1, 1, 0, 1, 1]  # the third context worker is not listed
