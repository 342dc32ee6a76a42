"""The files with one object per request."""

import json
from pathlib import Path
from typing import Any

import pytest
from running_proxy import chat, running_proxy

from proxy.lifecycle.record import RequestRecord
from proxy.telemetry import names
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.request_log import RequestLog
from proxy.telemetry.shared import SharedMetrics

SCOPE: Any = {"type": "http", "method": "POST"}


def record(number: int = 0, route: str = "/v1/completions") -> RequestRecord:
    made = RequestRecord(f"r{number}", 100.0)
    made.route, made.status, made.model, made.ended = route, 200, "m", 101.5
    return made


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.memory = SharedMetrics.private()

    def open(self, process: int = 0, **options: int) -> RequestLog:
        options = {"most_bytes": 1 << 20, "most_files": 3, **options}
        return RequestLog(self.directory, process, self.memory.rows[0], **options)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def lines(self) -> list[dict[str, Any]]:
        paths = sorted(self.directory.iterdir(), key=lambda path: int(path.stem.rpartition("-")[2]))
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    @property
    def dropped(self) -> int:
        return FleetView(self.memory).counters(names.REQUEST_LOG_DROPPED).get((), 0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "deep" / "log")


def test_every_request_is_written(world: World) -> None:
    log = world.open()
    for number in range(1000):
        log.settle(record(number), SCOPE)
    log.settle(record(route="/metrics"), SCOPE)
    log.close()
    lines = world.lines()
    assert [line["request_id"] for line in lines] == [f"r{number}" for number in range(1000)]
    assert (lines[0]["model"], lines[0]["outcome"], lines[0]["total_ms"]) == ("m", "ok", 1500.0)
    assert lines[0]["ts"] > 1_600_000_000
    assert world.files() == ["requests-0-1.jsonl"]
    assert world.dropped == 0


def test_files_are_bounded_in_size_and_number(world: World) -> None:
    (world.directory).mkdir(parents=True)
    (world.directory / "requests-0-mine.jsonl").touch()
    (world.directory / "requests-1-1.jsonl").touch()
    log = world.open(most_bytes=10_000)
    for number in range(3000):
        log.settle(record(number), SCOPE)
    log.close()
    own = [name for name in world.files() if name.startswith("requests-0-") and "mine" not in name]
    assert 2 <= len(own) <= 3
    assert "requests-0-1.jsonl" not in own
    assert {"requests-0-mine.jsonl", "requests-1-1.jsonl"} <= set(world.files())
    assert all((world.directory / name).stat().st_size < 10_000 + 256 * 400 for name in own)


def test_another_start_begins_another_file(world: World) -> None:
    for number in range(2):
        log = world.open()
        log.settle(record(number), SCOPE)
        log.close()
    assert world.files() == ["requests-0-1.jsonl", "requests-0-2.jsonl"]
    assert [line["request_id"] for line in world.lines()] == ["r0", "r1"]


def test_what_does_not_fit_is_dropped_and_counted(world: World) -> None:
    log = world.open(most_waiting=0)
    log.settle(record(), SCOPE)
    log.close()
    assert (world.lines(), world.dropped) == ([], 1)


def test_a_disk_that_fails_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    log = world.open()
    for path in world.directory.iterdir():
        path.unlink()
    world.directory.rmdir()
    for number in range(600):
        log.settle(record(number), SCOPE)
    log.close()
    assert world.dropped == 600
    assert [line.levelname for line in caplog.records] == ["ERROR"]


def test_a_directory_that_cannot_be_made_is_an_error(world: World) -> None:
    world.directory.parent.mkdir()
    world.directory.write_text("a file")
    with pytest.raises(OSError, match="exists"):
        world.open()


@pytest.mark.parametrize("stream", [False, True])
async def test_serving(world: World, stream: bool) -> None:
    headers = {"x-request-id": "mine", "x-session-id": "secret-conversation"}
    async with running_proxy(request_log_dir=str(world.directory)) as proxy:
        body = chat("secret words", stream=stream)
        answer = await proxy.client.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200
    (line,) = world.lines()
    assert (line["request_id"], line["status"], line["outcome"], line["model"]) == ("mine", 200, "ok", "sim")
    assert line["ctx"] in proxy.cluster.context_urls[0]
    assert line["gen"] in proxy.cluster.generation_urls[0]
    assert {"ctx_ms", "hand_off_ms", "gen_head_ms", "first_byte_ms", "total_ms", "overhead_ms"} <= line.keys()
    assert len(line["conversation"]) == 12
    assert line["bytes_out"] > 0
    assert "secret" not in json.dumps(line)
