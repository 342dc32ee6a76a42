import json
import logging
from typing import Any

import pytest

from proxy.config.address import parse_worker_address
from proxy.config.listed_worker import ListedWorker, RoleName
from proxy.workers.discovery.registration import RegisteredWorkers, worker_prefix

PREFIX = worker_prefix("c1")


def value(**fields: Any) -> str:
    return json.dumps({"worker_id": "w", "host": "h", "port": 8001, "role": 0, **fields})


def worker(url: str, role: RoleName, worker_id: str = "w") -> ListedWorker:
    return ListedWorker(parse_worker_address(url), role, labels={"worker_id": worker_id})


def test_the_prefix_is_upstreams() -> None:
    assert PREFIX == "/trtllm-disagg/c1/workers/"
    assert worker_prefix("") == "/trtllm-disagg//workers/"


def test_workers_of_both_roles() -> None:
    values = {
        f"{PREFIX}1": value(host="10.0.0.6", port=8002, role=1, worker_id="g"),
        f"{PREFIX}2": value(host="10.0.0.5", worker_id="c"),
        f"{PREFIX}3": value(host="fd00::5"),
    }
    assert RegisteredWorkers().listed(values) == (
        worker("10.0.0.5:8001", "context", "c"),
        worker("[fd00::5]:8001", "context"),
        worker("10.0.0.6:8002", "generation", "g"),
    )


def test_one_address_in_both_roles() -> None:
    values = {f"{PREFIX}1": value(), f"{PREFIX}2": value(role=1)}
    assert RegisteredWorkers().listed(values) == (worker("h:8001", "context"), worker("h:8001", "generation"))


def test_the_last_registration_of_an_address_counts() -> None:
    """The first one is that of a process that crashed and whose time is not over yet."""
    values = {
        f"{PREFIX}CONTEXT-h:8001-1764430000002-9-017": value(worker_id="new"),
        f"{PREFIX}CONTEXT-h:8001-1764430000001-8-018": value(worker_id="old"),
    }
    assert RegisteredWorkers().listed(values) == (worker("h:8001", "context", "new"),)


@pytest.mark.parametrize("role", [2, 3, 4])
def test_workers_of_other_roles_are_none_of_ours(role: int, caplog: pytest.LogCaptureFixture) -> None:
    assert RegisteredWorkers().listed({PREFIX: value(role=role)}) == ()
    assert not caplog.records


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "\udcff",
        '{"worker_id": "w", "host": "h", "port": 8001}',
        value(host=None),
        value(host=""),
        value(host="0.0.0.0"),
        value(host="::"),
        value(host="a b"),
        value(host="h/path"),
        value(port=0),
        value(port=70000),
        value(port="8001"),
        value(role="CONTEXT"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_told_once(text: str, caplog: pytest.LogCaptureFixture) -> None:
    workers = RegisteredWorkers()
    values = {f"{PREFIX}bad": text, f"{PREFIX}good": value()}
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert workers.listed(values) == (worker("h:8001", "context"),)
        assert len(caplog.records) == 1
        workers.listed({})
        workers.listed(values)
    assert len(caplog.records) == 2
