"""A real Prometheus scrapes a fleet of two processes under load."""

import json
import math
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_port import free_port
from program import Program, eventually

from proxy.sim import Speed, ThreadedSimCluster
from proxy.telemetry import names
from proxy.tokenisation.prompts import read_chat
from proxy.tokenisation.tokenizer import PromptTokenizer
from proxy.wire.members import split_object

PROMETHEUS = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(
    PROMETHEUS is None, reason="prometheus is missing (Debian package prometheus)"
)

FOLDER = Path(__file__).parents[2] / "deploy" / "observability"
MODEL = Path(__file__).parents[1] / "tokenisation" / "models" / "qwen_like"
TOKENIZER = PromptTokenizer(MODEL)
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODIES: tuple[tuple[str, dict[str, Any], int], ...] = (
    (CHAT, {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 6}, 200),
    (CHAT, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "unheard_of": 1}, 200),
    (COMPLETIONS, {"prompt": "one two", "max_tokens": 3}, 200),
    (COMPLETIONS, {"prompt": "one two", "max_tokens": 3, "stream": "maybe"}, 400),
)


class Load:
    """Some clients that ask one request after the other, on connections of their own, until they are stopped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.answers: Counter[tuple[str, str, int]] = Counter()  # route, stream, status
        self.broken = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(8)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def count(self, status: int) -> int:
        return sum(number for (_, _, seen), number in self.answers.items() if seen == status)

    def _run(self, number: int) -> None:
        while not self._stopping.is_set():
            # A connection stays with one process: begin a new one now and then.
            with httpx.Client(base_url=self._url, trust_env=False, timeout=20) as client:
                for turn in range(12):
                    path, body, expected = BODIES[(turn + number) % len(BODIES)]
                    try:
                        answer = client.post(path, json={"model": "sim", **body})
                    except httpx.HTTPError:
                        with self._lock:
                            self.broken += 1
                        break
                    assert answer.status_code == expected, answer.text
                    with self._lock:
                        self.answers[path, str(body.get("stream") is True).lower(), expected] += 1


class Stack:
    """The fleet, its workers, and Prometheus."""

    def __init__(self, fleet: Program, proxy_port: int, prometheus_port: int) -> None:
        self.fleet = fleet
        self.url = f"http://127.0.0.1:{proxy_port}"
        self._prometheus = f"http://127.0.0.1:{prometheus_port}"

    def query(self, expression: str) -> list[float]:
        """Values of an instant query now, those that are not numbers left out."""
        answer = httpx.get(f"{self._prometheus}/api/v1/query", params={"query": expression}, trust_env=False)
        assert answer.status_code == 200, answer.text
        values = [float(row["value"][1]) for row in answer.json()["data"]["result"]]
        return [value for value in values if not math.isnan(value)]

    def value(self, expression: str) -> float:
        found = self.query(expression)
        return found[0] if found else 0.0

    def pids(self) -> list[int]:
        found = re.findall(r"process (\d+) has started \(pid (\d+)\)", self.fleet.err)
        return [int(pid) for _, pid in sorted({int(index): pid for index, pid in found}.items())]


def prompt_ids(body: Mapping[str, Any]) -> list[int]:
    """Workers that tokenise with the model's tokenizer, as the proxy does."""
    if "prompt" in body:
        return TOKENIZER.encode(body["prompt"], add_special_tokens=True)
    chat = read_chat(split_object(json.dumps(body).encode()), strict_tools=True)
    return TOKENIZER.encode(chat.render(TOKENIZER), add_special_tokens=False)


@pytest.fixture
def stack(
    tmp_path: Path, run_program: Callable[..., Program], write_config: Callable[..., str]
) -> Iterator[Stack]:
    with ThreadedSimCluster(
        context=2, generation=2, speed=Speed(decode_ms=3.0), keep_alive_seconds=60.0, prompt_ids=prompt_ids
    ) as cluster:
        # Known from the sections below already: for the figures of discovery.
        listed = [{"url": url, "role": "generation"} for url in cluster.generation_urls]
        (tmp_path / "workers.yaml").write_text(json.dumps(listed))
        config = write_config(
            {
                "hostname": "127.0.0.1",
                "port": 0,
                "context_servers": {"urls": cluster.context_urls, "router": {"type": "conversation"}},
                "generation_servers": {"urls": cluster.generation_urls},
                "proxy": {
                    "probe_interval": 0.2,
                    "drain_grace": 0,
                    "request_log_dir": str(tmp_path / "log"),
                    "discovery": [{"type": "file", "path": str(tmp_path / "workers.yaml")}],
                    "tokenizer": str(MODEL),
                    "frontend_tokenisation": True,
                    "tokenisation_shadow": 0.2,
                },
            }
        )
        fleet = run_program("serve", "-c", config, "--workers", "2")
        port = int(fleet.wait_for(r"listening on 127\.0\.0\.1 port (\d+)")[1])
        scrape = (FOLDER / "prometheus.yml").read_text()
        assert "localhost:8000" in scrape
        scrape = scrape.replace("localhost:8000", f"127.0.0.1:{port}").replace(
            "_interval: 10s", "_interval: 1s"
        )
        (tmp_path / "prometheus.yml").write_text(scrape)
        shutil.copy(FOLDER / "rules.yml", tmp_path)
        prometheus_port = free_port()
        prometheus = run_program(
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{prometheus_port}",
            command=(str(PROMETHEUS),),
        )
        prometheus.wait_for("Server is ready to receive web requests", 30)
        yield Stack(fleet, port, prometheus_port)


def expressions() -> list[str]:
    """Of the dashboard, as Grafana would send them with everything chosen."""
    document = json.loads((FOLDER / "dashboard.json").read_text())
    found = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    values = {"$__rate_interval": "20s", "$job": ".+", "$instance": ".+"}
    for name, value in values.items():
        found = [expression.replace(name, value) for expression in found]
    assert not any("$" in expression for expression in found)
    return found


def _agree(stack: Stack, expected: Mapping[str, float]) -> bool:
    return all(stack.value(expression) == number for expression, number in expected.items())


def test_the_dashboard_shows_the_load(stack: Stack) -> None:
    eventually(lambda: stack.value("disagg_proxy_processes") == 2, what="both processes")
    eventually(lambda: stack.value("disagg_proxy_ready") == 1, what="readiness")
    load = Load(stack.url)
    load.start()
    try:
        missing = expressions()

        def all_found() -> bool:
            missing[:] = [expression for expression in missing if not stack.query(expression)]
            return not missing

        try:
            eventually(all_found, 40, "data for all panels")
        except AssertionError:
            raise AssertionError(f"no data for {missing}") from None
    finally:
        load.stop()
    assert load.broken == 0
    served = load.count(200)

    def counts() -> dict[str, float]:
        found = {'outcome="ok", model="sim"': served}
        for (route, stream, status), number in load.answers.items():
            outcome = "ok" if status == 200 else "rejected"
            found[f'route="{route}", stream="{stream}", outcome="{outcome}"'] = number
        return {f"sum(disagg_proxy_requests_total{{{labels}}})": number for labels, number in found.items()}

    eventually(lambda: _agree(stack, counts()), what="the last scrape")
    streams = sum(number for (_, stream, _), number in load.answers.items() if stream == "true")
    expected = {
        "sum(disagg_proxy_request_seconds_count)": served,
        "sum(disagg_proxy_overhead_seconds_count)": served,
        'disagg_proxy_leg_seconds_count{role="context"}': served,
        'disagg_proxy_leg_seconds_count{role="generation"}': served,
        "disagg_proxy_hand_off_seconds_count": served,
        "sum(disagg_proxy_first_byte_seconds_count)": streams,
        'sum(disagg_proxy_worker_legs_total{role="context", outcome="ok"})': served,
        'disagg_proxy_errors_total{source="client"}': load.count(400),
        'disagg_proxy_dropped_fields_total{field="unheard_of"}': load.answers[CHAT, "false", 200],
        "disagg_proxy_request_log_dropped_total": 0,
        "total_requests_total": served,
        "stream_requests_total": streams,
        "ctx_completed_requests_total": served,
        "gen_complete_latency_seconds_count": served,
    }
    # Counts that are kept elsewhere come from the other process once a second.
    eventually(lambda: _agree(stack, expected), 5, "agreement")


def test_no_counter_goes_backwards(stack: Stack) -> None:
    eventually(lambda: stack.value("disagg_proxy_processes") == 2, what="both processes")
    eventually(lambda: stack.value("disagg_proxy_ready") == 1, what="readiness")
    load = Load(stack.url)
    load.start()
    try:
        eventually(lambda: stack.value("sum(disagg_proxy_request_seconds_count)") > 100, what="load")
        os.kill(stack.pids()[0], 9)
        restarts = 'disagg_proxy_process_restarts_total{process="0"}'
        eventually(lambda: stack.value(restarts) == 1, what="the restart")
        before = load.answers.total()
        eventually(lambda: load.answers.total() > before + 200, what="more load")
    finally:
        load.stop()
    served = load.count(200)
    total = 'sum(disagg_proxy_requests_total{outcome="ok", model="sim"})'
    eventually(lambda: stack.value(total) >= served - load.broken, what="the last scrape")
    assert stack.value(total) <= served + load.broken
    ends = {"counter": ("_total",), "histogram": ("_count", "_bucket", "_sum"), "gauge": ()}
    for series in (names.PREFIX + metric.name + end for metric in names.ALL for end in ends[metric.kind]):
        assert stack.query(f"resets({series}[5m]) > 0") == [], series
    # Half of the fleet was gone, yet there were answers.
    assert stack.value("max_over_time(disagg_proxy_ready[5m])") == 1
