"""Spans, as a collector gets them."""

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from running_proxy import chat, running_proxy

from proxy.config.errors import ConfigError
from proxy.config.settings import OTLPSettings, Settings
from proxy.telemetry import tracing_setup
from proxy.telemetry.tracing_setup import check_tracing, open_tracing

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed")

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ROUTE = "/v1/chat/completions"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"


class Collector:
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: dict[str, dict[str, Any]] = {}
        self.resources: list[dict[str, Any]] = []
        self.paths: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    raise AssertionError("not asked for")
                request = ExportTraceServiceRequest()
                request.ParseFromString(data)
                collector.paths.add(self.path)
                collector.take(MessageToDict(request))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def take(self, request: dict[str, Any]) -> None:
        for group in request["resourceSpans"]:
            self.resources.append(values(group["resource"]))
            for scope in group["scopeSpans"]:
                for span in scope["spans"]:
                    self.spans[span["name"]] = span

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def values(owner: dict[str, Any]) -> dict[str, Any]:
    return {row["key"]: next(iter(row["value"].values())) for row in owner.get("attributes", ())}


def hexadecimal(text: str) -> str:
    return base64.b64decode(text).hex()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_spans_of_a_request(collector: Collector, stream: bool) -> None:
    keys = {"otlp_config": {"otlp_traces_endpoint": collector.url}}
    async with running_proxy(**keys) as proxy:
        headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "tracestate": "a=b", "x-request-id": "mine"}
        answer = await proxy.client.post(ROUTE, json=chat("secret words", stream=stream), headers=headers)
        assert answer.status_code == 200
        seen = [worker.requests[-1] for worker in proxy.cluster.workers]
        addresses = [
            url.removeprefix("http://")
            for url in (proxy.cluster.context_urls[0], proxy.cluster.generation_urls[0])
        ]
    # The end of the proxy has flushed them.
    assert collector.paths == {"/v1/traces"}
    assert collector.resources[0]["service.name"] == "disagg-proxy"
    assert collector.spans.keys() == {"request", "context leg", "generation leg"}
    assert {hexadecimal(span["traceId"]) for span in collector.spans.values()} == {TRACE}
    request = collector.spans["request"]
    own = hexadecimal(request["spanId"])
    assert hexadecimal(request["parentSpanId"]) == CLIENT
    assert {
        hexadecimal(collector.spans[f"{leg} leg"]["parentSpanId"]) for leg in ("context", "generation")
    } == {own}
    for worker in seen:
        assert worker.header("traceparent") == f"00-{TRACE}-{own}-01"
        assert worker.header("tracestate") == "a=b"
    attributes = values(request)
    assert attributes["disagg_proxy.request_id"] == "mine"
    assert attributes["http.response.status_code"] == "200"
    assert [
        values(collector.spans[f"{leg} leg"])["disagg_proxy.worker"] for leg in ("context", "generation")
    ] == addresses
    assert "secret" not in str(collector.spans)
    times = {
        name: (int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
        for name, span in collector.spans.items()
    }
    begin, end = times["request"]
    context, generation = times["context leg"], times["generation leg"]
    # The clocks are read at two moments.
    assert begin - 1_000_000 <= context[0] <= context[1] <= generation[0] <= generation[1] <= end
    assert 0 < end - begin < 10e9


async def test_a_request_that_waits_has_a_span_of_the_queue(collector: Collector) -> None:
    keys = {"otlp_config": {"otlp_traces_endpoint": collector.url}, "max_inflight": 1}
    async with running_proxy(**keys) as proxy:
        proxy.cluster.context_workers[0].board.add({"kind": "slow_first_byte", "seconds": 0.1, "count": 1})
        first, second = proxy.send(), proxy.send()
        assert {(await first).status_code, (await second).status_code} == {200}
    assert "queue" in collector.spans


async def test_errors_and_new_traces(collector: Collector) -> None:
    keys = {"otlp_config": {"otlp_traces_endpoint": collector.url}, "max_retries": 0}
    async with running_proxy(**keys) as proxy:
        proxy.cluster.context_workers[0].board.add({"kind": "null_body", "count": 1})
        answer = await proxy.client.post(ROUTE, json=chat(), headers={"traceparent": "nonsense"})
        assert answer.status_code == 502
        parent = proxy.cluster.context_workers[0].requests[-1].header("traceparent")
    request = collector.spans["request"]
    # The second flag says that the trace id is random (W3C Trace Context, level 2).
    assert parent in {
        f"00-{hexadecimal(request['traceId'])}-{hexadecimal(request['spanId'])}-{flags}"
        for flags in ("01", "03")
    }
    assert "parentSpanId" not in request
    assert request["status"]["code"] == "STATUS_CODE_ERROR"
    assert values(request)["error.type"] == "bad_worker_response"


async def test_what_the_client_does_not_sample_is_not_exported(collector: Collector) -> None:
    keys = {"otlp_config": {"otlp_traces_endpoint": collector.url}}
    async with running_proxy(**keys) as proxy:
        headers = {"traceparent": f"00-{TRACE}-{CLIENT}-00"}
        assert (await proxy.client.post(ROUTE, json=chat(), headers=headers)).status_code == 200
        parent = proxy.cluster.context_workers[0].requests[-1].header("traceparent")
    assert parent is not None
    assert parent.startswith(f"00-{TRACE}-")
    assert parent.endswith("-00")
    assert collector.spans == {}


async def test_a_collector_that_is_not_there_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.telemetry.tracing._CLOSING_SECONDS", 0.2)
    keys = {"otlp_config": {"otlp_traces_endpoint": "http://127.0.0.1:9"}}
    async with running_proxy(**keys) as proxy:
        for _ in range(3):
            assert (await proxy.client.post(ROUTE, json=chat())).status_code == 200


def test_the_resource_is_that_of_the_environment(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "front")
    tracing = open_tracing(Settings(otlp_config=OTLPSettings(collector.url + "/v1/traces")))
    assert tracing is not None
    tracing._tracer.start_span("x").end()
    tracing.close()
    assert collector.resources[0]["service.name"] == "front"


def test_without_the_extra_it_is_a_mistake_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_setup, "_PACKAGES", ("no_such_package_anywhere.sdk",))
    check_tracing(Settings())
    with pytest.raises(ConfigError, match=r"disagg-proxy\[otel\]"):
        check_tracing(Settings(otlp_config=OTLPSettings("http://c/v1/traces")))


def test_nothing_is_imported_when_it_is_off() -> None:
    assert open_tracing(Settings()) is None
    code = "import sys, proxy.app, proxy.serve; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0
