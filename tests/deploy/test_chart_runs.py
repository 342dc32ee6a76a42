"""What the chart starts, started: arguments, environment and files of a pod, with simulated workers."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from chart import SECRETS, Chart, Rendered
from free_port import free_port
from program import Program, eventually

from proxy.sim import Speed, ThreadedSimCluster

CHAT = "/v1/chat/completions"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
BODY: dict[str, Any] = {"model": "sim", "messages": [{"role": "user", "content": "hi"}], "stream": True}


class Pod:
    """The proxy's container, its files below a folder.

    Attributes:
        rendered: with values that fit this machine.
        url: where it serves.
    """

    def __init__(self, chart: Chart, folder: Path, start: Callable[..., Program], **values: Any) -> None:
        port = free_port()
        here = {
            "config.hostname": "127.0.0.1",
            "config.port": port,
            "config.proxy.probe_interval": 0.2,
            "config.proxy.drain_grace": 0,
        }
        self.rendered: Rendered = chart.render(**{**here, **values})
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self._start = start
        self.program: Program | None = None

    def below(self, text: str) -> str:
        """With the paths of this machine."""
        for path in (SECRETS, "/etc/disagg-proxy-workers", "/etc/disagg-proxy"):
            text = re.sub(rf"(?<![\w/]){path}(?![\w-])", str(self.folder / Path(path).name), text)
        return text

    def write(self, path: str, content: str) -> None:
        file = Path(self.below(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.below(content))

    def run(self, command: str) -> Program:
        """`serve` as the container has it, or another command with the same file."""
        self.write("/etc/disagg-proxy/config.yaml", self.rendered.config_text)
        arguments = [self.below(each) for each in self.rendered.container["args"]]
        assert arguments[0] == "serve"
        # What the kubelet makes of the pod's label, here of the fourth pod.
        environment = {
            each["name"]: "3" if "pod-index" in str(each) else each.get("value", "pod-3")
            for each in self.rendered.container["env"]
        }
        program: Program = self._start(command, *arguments[1:], environment=environment)
        if command == "serve":
            self.program = program
        return program

    def probe(self, kind: str) -> int:
        """The status that the kubelet gets, 0 without an answer."""
        get = self.rendered.container[kind]["httpGet"]
        assert get["scheme"] == "HTTP"
        try:
            return httpx.get(self.url + get["path"], trust_env=False, timeout=10).status_code
        except httpx.TransportError:
            return 0

    def end(self) -> None:
        """As the kubelet does it: the hook, then SIGTERM."""
        assert self.program is not None
        hook = self.rendered.container["lifecycle"]["preStop"]["exec"]["command"]
        subprocess.run(hook, check=True, timeout=30)
        self.program.terminate()


PodFactory = Callable[..., Pod]


@pytest.fixture
def pod(chart: Chart, tmp_path: Path, run_program: Callable[..., Program]) -> PodFactory:
    return lambda **values: Pod(chart, tmp_path, run_program, **values)


@pytest.fixture
def cluster() -> Iterator[ThreadedSimCluster]:
    with ThreadedSimCluster(context=2, generation=1, speed=Speed(decode_ms=20.0)) as cluster:
        yield cluster


def urls(cluster: ThreadedSimCluster) -> dict[str, Any]:
    return {
        "config.context_servers.urls": cluster.context_urls[:1],
        "config.generation_servers.urls": cluster.generation_urls,
    }


def test_check_takes_what_was_rendered(pod: PodFactory, cluster: ThreadedSimCluster) -> None:
    secured = pod(
        **urls(cluster),
        **{
            "apiKeysSecret.name": "keys",
            "admin.tokenSecret.name": "admin",
            "workerApiKeySecret.name": "worker",
        },
    )
    secured.write(f"{SECRETS}/api-keys/keys", "alice:sk-alice\n")
    secured.write(f"{SECRETS}/admin/token", "secret\n")
    secured.write(f"{SECRETS}/worker-api-key/token", "worker\n")
    program = secured.run("check")
    assert program.wait(60) == 0, program.out + program.err
    assert re.search(r"^node_id: 3$", program.out, re.MULTILINE)
    warnings = program.out.partition("\n# warnings\n")[2].partition("\n\n")[0]
    # The tests may run inside a container, where this address is a mistake.
    assert [line for line in warnings.splitlines() if "hostname is 127.0.0.1" not in line] == []


def test_probes_follow_the_workers_and_the_list_of_the_chart(
    pod: PodFactory, cluster: ThreadedSimCluster
) -> None:
    """Names of pods mean nothing here: the mounted list gets the addresses of simulated workers in their places."""
    own = pod(**{"workers.context": [{"name": "a", "model": "sim"}], "workers.generation": []})
    files = own.rendered.get("ConfigMap", "r-disagg-proxy-workers")["data"]
    listed = yaml.safe_load(files["workers.yaml"])
    assert [each["role"] for each in listed] == ["context"]
    listed[0]["url"] = cluster.context_urls[0]
    own.write("/etc/disagg-proxy-workers/workers.yaml", yaml.safe_dump(listed))
    own.run("serve")
    eventually(lambda: own.probe("startupProbe") == 200, 60, "the start")
    assert own.probe("livenessProbe") == 200
    assert own.probe("readinessProbe") == 503
    # A generation worker joins.
    listed.append({"url": cluster.generation_urls[0], "role": "generation"})
    own.write("/etc/disagg-proxy-workers/workers.yaml", yaml.safe_dump(listed))
    eventually(lambda: own.probe("readinessProbe") == 200, 60, "readiness")
    answer = httpx.post(own.url + CHAT, json={**BODY, "stream": False}, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text


def test_admin_routes_are_where_the_notes_say(
    chart: Chart, pod: PodFactory, cluster: ThreadedSimCluster
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    values = {**urls(cluster), "admin.listen": listen, "admin.tokenSecret.name": "admin"}
    own = pod(**values)
    own.write(f"{SECRETS}/admin/token", "secret\n")
    own.run("serve")
    eventually(lambda: own.probe("readinessProbe") == 200, 60, "readiness")
    found = re.search(r"curl (.*) (http://127\.0\.0\.1:\d+/admin/status)", chart.notes(**values))
    assert found is not None
    assert found[1] == '-H "authorization: Bearer $ADMIN_TOKEN"'
    with httpx.Client(trust_env=False, timeout=60) as client:
        assert client.get(found[2]).status_code == 401
        answer = client.get(found[2], headers={"authorization": "Bearer secret"})
    assert answer.status_code == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing")
@pytest.mark.parametrize("keys", [False, True])
def test_the_curl_of_the_notes(
    chart: Chart, pod: PodFactory, cluster: ThreadedSimCluster, keys: bool
) -> None:
    values = {**urls(cluster), **({"apiKeysSecret.name": "keys"} if keys else {})}
    own = pod(**values)
    own.write(f"{SECRETS}/api-keys/keys", "alice:sk-alice\n")
    own.run("serve")
    eventually(lambda: own.probe("readinessProbe") == 200, 60, "readiness")
    found = re.search(r"^  (curl -N (?:.*\\\n)+.*)$", chart.notes(**values), re.MULTILINE)
    assert found is not None
    # port-forward makes the service this machine's port 8000.
    command = found[1].replace("http://127.0.0.1:8000", own.url).replace('"MODEL"', '"sim"')
    result = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "API_KEY": "sk-alice", "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout.rstrip().endswith("data: [DONE]"), result.stdout + result.stderr


def test_a_pod_ends_when_its_streams_have(pod: PodFactory, cluster: ThreadedSimCluster) -> None:
    own = pod(**urls(cluster), **{"shutdown.preStopSeconds": 1, "config.proxy.drain_grace": 3})
    program = own.run("serve")
    eventually(lambda: own.probe("readinessProbe") == 200, 60, "readiness")
    lines: list[str] = []

    def stream() -> None:
        with httpx.stream(
            "POST", own.url + CHAT, json={**BODY, "max_tokens": 300}, trust_env=False, timeout=60
        ) as answer:
            lines.extend(line for line in answer.iter_lines() if line)

    client = threading.Thread(target=stream)
    client.start()
    try:
        begin = time.monotonic()
        own.end()
        eventually(lambda: own.probe("readinessProbe") == 503, what="the end of readiness")
        # A load balancer that has not heard of it yet still sends requests.
        late = httpx.post(
            own.url + CHAT, json={**BODY, "stream": False, "max_tokens": 2}, trust_env=False, timeout=60
        )
        assert late.status_code == 200
        assert own.probe("livenessProbe") == 200
        assert program.wait(60) == 0
    finally:
        client.join()
    assert lines[-1] == "data: [DONE]"
    assert time.monotonic() - begin < own.rendered.pod["terminationGracePeriodSeconds"]


def test_sighup_takes_over_a_configmap_that_has_changed(pod: PodFactory, cluster: ThreadedSimCluster) -> None:
    own = pod(**urls(cluster), restartOnConfigChange=False)
    program = own.run("serve")
    eventually(lambda: own.probe("readinessProbe") == 200, 60, "readiness")
    changed = yaml.safe_load(own.rendered.config_text)
    changed["context_servers"]["urls"] = cluster.context_urls
    own.write("/etc/disagg-proxy/config.yaml", yaml.safe_dump(changed))
    program.process.send_signal(signal.SIGHUP)

    def workers() -> int:
        metrics = httpx.get(own.url + "/metrics", trust_env=False, timeout=60).text
        return len(re.findall(r'^disagg_proxy_worker_ready\{role="context".*\} 1', metrics, re.MULTILINE))

    eventually(lambda: workers() == 2, 60, "the second context worker")
