"""The HTTP cluster storage over real sockets, row by row, with one process and behind a supervisor.

The requests are those of `trtllm-serve` workers; statuses and bodies those of `trtllm-serve disaggregated`.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import yaml
from program import SECONDS, Program, eventually

Storage = httpx.Client


@pytest.fixture(scope="module", params=[1, 2], ids=["alone", "fleet"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("storage")
    document = {
        "hostname": "127.0.0.1",
        "port": 0,
        "num_workers": request.param,
        "disagg_cluster": {"cluster_uri": "http://127.0.0.1:8000"},
        "proxy": {"drain_grace": 0},
    }
    (directory / "disagg.yaml").write_text(yaml.safe_dump(document))
    program = Program("serve", "-c", str(directory / "disagg.yaml"), directory=directory)
    try:
        yield f"http://127.0.0.1:{port_of(program, request.param)}"
    finally:
        program.stop()


def port_of(program: Program, processes: int) -> int:
    if processes == 1:
        return int(program.wait_for(r"running on http://127\.0\.0\.1:(\d+)")[1])
    for index in range(processes):
        program.wait_for(rf"process {index} serves")
    return int(program.wait_for(r"listening on 127\.0\.0\.1 port (\d+)")[1])


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    # A connection for each call: with two processes they come to both.
    limits = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=url, timeout=SECONDS, trust_env=False, limits=limits) as client:
        yield client


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"/trtllm-disagg/c é&=%/{request.node.name}"


def item(key: str, value: str = "v", **fields: Any) -> dict[str, Any]:
    return {
        "key": key,
        "value": value,
        "expire_time": -1,
        "ttl": -1,
        "overwrite_if_exists": False,
        **fields,
    }


def result(answer: httpx.Response) -> tuple[int, Any]:
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json()


def put(storage: Storage, body: Any) -> tuple[int, Any]:
    return result(storage.post("/set", json=body))


def get(storage: Storage, key: str) -> tuple[int, Any]:
    return result(storage.get("/get", params={"key": key}))


def delete(storage: Storage, key: str) -> tuple[int, Any]:
    return result(storage.delete("/delete", params={"key": key}))


def expire(storage: Storage, key: str, ttl: str) -> tuple[int, Any]:
    return result(storage.get("/expire", params={"key": key, "ttl": ttl}))


def get_prefix(storage: Storage, prefix: str, **options: Any) -> tuple[int, Any]:
    return result(storage.get("/get_prefix", params={"key_prefix": prefix, **options}))


TRUE, FALSE, NULL = (200, {"result": True}), (400, {"result": False}), (400, {"result": None})


def test_set(storage: Storage, key: str) -> None:
    assert put(storage, item(key)) == TRUE
    assert get(storage, key) == (200, {"result": "v"})


def test_set_of_a_key_that_exists(storage: Storage, key: str) -> None:
    assert put(storage, item(key)) == TRUE
    assert put(storage, item(key, "w", ttl=10)) == FALSE
    assert get(storage, key) == (200, {"result": "v"})


def test_set_with_overwrite(storage: Storage, key: str) -> None:
    assert put(storage, item(key)) == TRUE
    assert put(storage, item(key, "w", overwrite_if_exists=True)) == TRUE
    assert get(storage, key) == (200, {"result": "w"})


@pytest.mark.parametrize(
    "body",
    [
        {"key": "K", "value": "v"},
        {"key": "K", "value": "v", "expire_time": None, "ttl": None, "overwrite_if_exists": None},
        {"key": "K", "value": "v", "something": "else"},
    ],
)
def test_set_with_defaults(storage: Storage, key: str, body: dict[str, Any]) -> None:
    assert put(storage, {**body, "key": key}) == TRUE
    assert get(storage, key) == (200, {"result": "v"})


def test_get_of_a_key_that_does_not_exist(storage: Storage, key: str) -> None:
    assert get(storage, key) == NULL


def test_an_empty_value_counts_as_none(storage: Storage, key: str) -> None:
    assert put(storage, {"key": key}) == TRUE
    assert get(storage, key) == (400, {"result": ""})


def test_delete(storage: Storage, key: str) -> None:
    put(storage, item(key))
    assert delete(storage, key) == TRUE
    assert get(storage, key) == NULL
    assert delete(storage, key) == FALSE


def test_a_ttl(storage: Storage, key: str) -> None:
    began = time.monotonic()
    assert put(storage, item(key, ttl=1)) == TRUE
    eventually(lambda: get(storage, key) == NULL, what="the end of the key")
    assert time.monotonic() - began >= 0.99
    assert put(storage, item(key)) == TRUE


def test_an_expire_time_in_the_past(storage: Storage, key: str) -> None:
    assert put(storage, item(key, expire_time=0, ttl=1000)) == TRUE
    assert get(storage, key) == NULL


def test_expire_prolongs(storage: Storage, key: str) -> None:
    put(storage, item(key, ttl=2))
    assert expire(storage, key, "1000") == TRUE
    time.sleep(2.1)
    assert get(storage, key) == (200, {"result": "v"})


def test_expire_shortens(storage: Storage, key: str) -> None:
    put(storage, item(key))
    assert expire(storage, key, "0") == TRUE
    assert get(storage, key) == NULL


def test_expire_of_a_key_that_does_not_exist(storage: Storage, key: str) -> None:
    assert expire(storage, key, "10") == FALSE


def test_get_prefix(storage: Storage, key: str) -> None:
    put(storage, item(f"{key}/1", "a"))
    put(storage, item(f"{key}/2", "b"))
    both = {f"{key}/1": "a", f"{key}/2": "b"}
    assert get_prefix(storage, f"{key}/") == (200, {"result": both})
    assert get_prefix(storage, f"{key}/", keys_only=0) == (200, {"result": both})
    assert get_prefix(storage, f"{key}/", keys_only=1) == (200, {"result": dict.fromkeys(both, "")})


def test_get_prefix_of_nothing(storage: Storage, key: str) -> None:
    assert get_prefix(storage, key) == (400, {"result": {}})


def test_an_expired_key_is_in_no_prefix(storage: Storage, key: str) -> None:
    put(storage, item(f"{key}/1", ttl=1))
    eventually(lambda: get_prefix(storage, key) == (400, {"result": {}}), what="the end of the key")


@pytest.mark.parametrize(
    ("call", "param"),
    [
        (lambda storage: storage.get("/get"), "key"),
        (lambda storage: storage.delete("/delete"), "key"),
        (lambda storage: storage.get("/expire", params={"key": "x"}), "ttl"),
        (lambda storage: storage.get("/expire", params={"ttl": "1"}), "key"),
        (lambda storage: storage.get("/expire", params={"key": "x", "ttl": "soon"}), "ttl"),
        (lambda storage: storage.get("/get_prefix"), "key_prefix"),
        (lambda storage: storage.get("/get_prefix?key_prefix=a&keys_only=maybe"), "keys_only"),
        (lambda storage: storage.post("/set", content=b"{"), None),
        (lambda storage: storage.post("/set", content=b"\xff"), None),
        (lambda storage: storage.post("/set", content=b"[" * 50_000), None),
        (lambda storage: storage.post("/set", json={"value": "v"}), None),
        (lambda storage: storage.post("/set", json=item("x", ttl="soon")), None),
        (lambda storage: storage.post("/set", json={"key": None}), None),
    ],
)
def test_mistakes(storage: Storage, call: Callable[[Storage], httpx.Response], param: str | None) -> None:
    answer = call(storage)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["param"] == param


def test_too_much(storage: Storage, key: str) -> None:
    assert put(storage, item(key, "v" * 20_000)) == FALSE
    assert storage.post("/set", json=item(key, "v" * 70_000)).status_code == 413


@pytest.mark.parametrize("header", ["origin", "sec-fetch-site"])
def test_pages_of_other_sites_register_nobody(storage: Storage, key: str, header: str) -> None:
    content = json.dumps(item(key))
    answer = storage.post("/set", content=content, headers={header: "null", "content-type": "text/plain"})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "cross_site_request"
    assert get(storage, key) == NULL


def test_wrong_methods(storage: Storage) -> None:
    assert storage.get("/set").status_code == 405
    assert storage.post("/delete").status_code == 405
