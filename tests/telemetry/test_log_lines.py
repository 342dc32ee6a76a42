"""The access line and the formats of log output."""

import asyncio
import io
import json
import logging
import re
import select
import subprocess
import sys
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.config.address import parse_worker_address
from proxy.errors import NotReady
from proxy.lifecycle.record import RequestRecord
from proxy.telemetry.access_log import access_fields, log_access
from proxy.telemetry.logs import JSONFormatter, configure_logging

SCOPE: Any = {"type": "http", "method": "POST"}


def record() -> RequestRecord:
    made = RequestRecord("req-1", 100.0)
    made.route = "/v1/chat/completions"
    made.status = 200
    made.stream = True
    made.body_size, made.response_size = 10, 20
    return made


def worker(url: str) -> Any:
    return SimpleNamespace(address=parse_worker_address(url))


def test_a_request_that_was_refused_has_no_phases() -> None:
    refused = record()
    refused.status = 503
    refused.error = NotReady("no", code="no_context_worker")
    fields = access_fields(refused, "POST")
    assert fields["error"] == "proxy;no_context_worker"
    assert fields["outcome"] == "error"
    assert not [name for name in fields if name.endswith("_ms")]
    assert not {"ctx", "gen", "disagg_request_id", "key"} & fields.keys()


def test_a_whole_request() -> None:
    whole = record()
    whole.key = "team-a"
    whole.disagg_request_id = 2**62
    whole.context_worker, whole.generation_worker = worker("c:1"), worker("unix:/g")
    whole.queue_began, whole.queue_ended = 100.0, 100.0005
    whole.context_sent, whole.context_done = 101.0, 101.25
    whole.generation_sent, whole.generation_head = 101.25, 101.5
    whole.first_byte = 102.0
    fields = access_fields(whole, "POST")
    assert {name: fields[name] for name in ("method", "path", "status", "outcome", "stream")} == {
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "outcome": "ok",
        "stream": "true",
    }
    assert (fields["request_id"], fields["key"], fields["disagg_request_id"]) == ("req-1", "team-a", 2**62)
    assert (fields["ctx"], fields["gen"]) == ("c:1", "unix:/g")
    assert (fields["bytes_in"], fields["bytes_out"]) == (10, 20)
    assert (fields["queue_ms"], fields["ctx_ms"], fields["gen_head_ms"]) == (0.5, 250.0, 250.0)
    assert fields["first_byte_ms"] == 2000.0
    assert "error" not in fields


def test_the_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "proxy.access"):
        log_access(record(), SCOPE)
    (line,) = caplog.records
    assert line.getMessage().startswith("request_id=req-1 method=POST path=/v1/chat/completions status=200")
    assert line.fields["stream"] == "true"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "route", ["/health", "/health/live", "/health/ready", "/metrics", "/prometheus/metrics"]
)
def test_probes_and_scrapes_write_none(caplog: pytest.LogCaptureFixture, route: str) -> None:
    probe = record()
    probe.route = route
    with caplog.at_level(logging.INFO, "proxy.access"):
        log_access(probe, SCOPE)
    assert caplog.records == []


def log_record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("proxy.x", logging.WARNING, "f.py", 1, message, arguments, None)
    made.__dict__.update(extra)
    return made


def test_json_lines() -> None:
    line = json.loads(JSONFormatter().format(log_record("it is %s:\n€", "so")))
    assert line.pop("ts") > 1_600_000_000
    assert line == {"level": "warning", "logger": "proxy.x", "message": "it is so:\n€"}
    formatted = JSONFormatter(3).format(log_record("x", fields={"status": 200, "path": "/a"}))
    assert "\n" not in formatted
    line = json.loads(formatted)
    assert (line["process"], line["status"], line["path"]) == (3, 200, "/a")
    assert "message" not in line


def test_an_exception_stays_on_one_line() -> None:
    try:
        raise ValueError("a bug")
    except ValueError:
        made = log_record("failed", exc_info=sys.exc_info())
    formatted = JSONFormatter().format(made)
    assert "\n" not in formatted
    assert "ValueError: a bug" in json.loads(formatted)["exception"]


@pytest.fixture
def root_logger():
    """Puts the root logger back as it was."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    root.handlers = []
    yield root
    root.handlers, root.level = before[0], before[1]
    logging.getLogger("proxy.access").disabled = False


@pytest.mark.parametrize("process", [None, 2])
@pytest.mark.parametrize("style", ["text", "json"])
def test_configuring(
    root_logger, capsys: pytest.CaptureFixture[str], style: Any, process: int | None
) -> None:
    configure_logging("Warning", style, access_log=True, process=process)
    logging.getLogger("proxy.x").warning("hello %s", "you")
    logging.getLogger("proxy.x").info("not this")
    out, error = capsys.readouterr()
    assert out == ""
    (line,) = error.splitlines()
    if style == "json":
        assert json.loads(line)["message"] == "hello you"
    else:
        assert line.endswith("WARNING proxy.x: hello you")
        assert ("[2]" in line) is (process == 2)


def test_access_lines_can_be_switched_off(root_logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "text", access_log=False)
    log_access(record(), SCOPE)
    assert capsys.readouterr().err == ""
    configure_logging("info", "text", access_log=True)
    log_access(record(), SCOPE)
    assert "request_id=req-1" in capsys.readouterr().err


class Stream(io.StringIO):
    """Notes each write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def write(self, text: str) -> int:
        self.written.append(text)
        return super().write(text)


@pytest.mark.parametrize("process", [None, 2])
@pytest.mark.parametrize("style", ["text", "json"])
async def test_access_lines_look_as_if_the_logging_library_wrote_them(
    root_logger, style: Any, process: int | None
) -> None:
    configure_logging("info", style, access_log=True, process=process)
    (handler,) = root_logger.handlers
    stream = Stream()
    handler.setStream(stream)
    whole = record()
    whole.key = "käse"
    log_access(whole, SCOPE)
    root_logger.addHandler(logging.NullHandler())  # not ours alone any more
    log_access(whole, SCOPE)
    direct, formatted = stream.getvalue().splitlines()
    if style == "json":
        direct, formatted = json.loads(direct), json.loads(formatted)
        assert direct.keys() == formatted.keys()
        assert abs(direct.pop("ts") - formatted.pop("ts")) < 5
        assert direct == formatted
    else:
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", direct)
        assert abs(seconds_of(direct) - seconds_of(formatted)) < 5
        assert direct[24:] == formatted[24:]


def seconds_of(line: str) -> float:
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()


async def test_access_lines_are_written_together(root_logger) -> None:
    configure_logging("info", "text", access_log=True)
    stream = Stream()
    root_logger.handlers[0].setStream(stream)
    for _ in range(5):
        log_access(record(), SCOPE)
    assert stream.written == []
    async with asyncio.timeout(10):
        while not stream.written:
            await asyncio.sleep(0.001)
    (text,) = stream.written
    assert text.count("request_id=req-1 ") == text.count("\n") == 5


async def test_what_waits_is_bounded_and_pieces_are_whole_lines(root_logger) -> None:
    configure_logging("info", "json", access_log=True)
    stream = Stream()
    root_logger.handlers[0].setStream(stream)
    long = record()
    long.key = "ü" * 500
    for _ in range(200):
        log_access(long, SCOPE)
    assert 50 < len(stream.written) < 200
    for text in stream.written:
        assert text.endswith("}\n")
        assert len(text.encode()) <= select.PIPE_BUF
    root_logger.handlers[0].close()
    assert len(stream.getvalue().splitlines()) == 200


async def test_order_is_kept(root_logger) -> None:
    configure_logging("info", "text", access_log=True)
    stream = Stream()
    root_logger.handlers[0].setStream(stream)
    log_access(record(), SCOPE)
    logging.getLogger("proxy.x").warning("afterwards")
    first, second = stream.getvalue().splitlines()
    assert "request_id=" in first
    assert "afterwards" in second


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "raise ValueError"])
def test_no_line_is_lost_at_the_end(ending: str) -> None:
    program = f"""
import asyncio
from proxy.lifecycle.record import RequestRecord
from proxy.telemetry.access_log import log_access
from proxy.telemetry.logs import configure_logging

async def main():
    configure_logging("info", "text", access_log=True)
    for number in range(30):
        record = RequestRecord(f"req-{{number}}", 0.0)
        record.route = "/v1/completions"
        log_access(record, {{"method": "POST"}})
    {ending or "pass"}

asyncio.run(main())
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stderr.count("request_id=req-") == 30
