"""The commands of compose.yaml as processes, each service on a loopback address of its own in place of its name."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from compose_files import load, mounts
from loopback import network
from program import Program, eventually

PROMTOOL = shutil.which("promtool")
SECONDS = 60.0
NETWORK = network(1)


class Stack:
    """The files and commands of an application, with addresses in place of names and of `0.0.0.0`."""

    def __init__(self, application: dict[str, Any], folder: Path) -> None:
        self.application = application
        self._folder = folder
        names = sorted(application["services"])
        self.address = {name: f"{NETWORK}.{number}" for number, name in enumerate(names, 1)}

    def addressed(self, text: str, service: str) -> str:
        names = "|".join(map(re.escape, self.address))
        text = re.sub(
            rf"(?<![\w-])({names})(?=:\d|$)", lambda found: self.address[found[1]], text, flags=re.MULTILINE
        )
        return text.replace("0.0.0.0", self.address[service])

    def files(self, service: str) -> dict[str, Path]:
        """The mounted files by where the service sees them."""
        found = {}
        for mount in mounts(self.application, service):
            path = self._folder / mount.target.strip("/").replace("/", "_")
            path.write_text(self.addressed(mount.source.read_text(), service))
            found[mount.target] = path
        return found

    def words(self, service: str, command: list[str]) -> list[str]:
        files = {target: str(path) for target, path in self.files(service).items()}
        return [files.get(word, self.addressed(word, service)) for word in command]

    def healthy(self, service: str) -> bool:
        kind, program, *arguments = self.words(
            service, self.application["services"][service]["healthcheck"]["test"]
        )
        assert (kind, program) == ("CMD", "disagg-proxy")
        done = subprocess.run(
            [sys.executable, "-m", "proxy", *arguments], capture_output=True, timeout=SECONDS
        )
        return done.returncode == 0


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(load("compose.yaml"), tmp_path)


def test_the_application_starts_serves_and_stops(stack: Stack, run_program: Callable[..., Program]) -> None:
    services = stack.application["services"]
    proxy = services["proxy"]
    for worker in proxy["depends_on"]:
        run_program(*stack.words(worker, services[worker]["command"]))
    for worker in proxy["depends_on"]:
        eventually(lambda name=worker: stack.healthy(name), SECONDS, f"health of {worker}")
    config = str(stack.files("proxy")["/etc/disagg-proxy/disagg.yaml"])
    check = run_program("check", "-c", config)
    assert check.wait(SECONDS) == 0, check.out + check.err

    program = run_program("serve", "-c", config, environment={"DISAGG_PROXY_DRAIN_GRACE": "0"})
    eventually(lambda: stack.healthy("proxy"), SECONDS, "readiness")
    url = f"http://{stack.address['proxy']}:8000"
    with httpx.Client(base_url=url, trust_env=False, timeout=SECONDS) as client:
        for _ in range(4):
            answer = client.post(
                "/v1/completions", json={"model": "sim", "prompt": "one two", "max_tokens": 3}
            )
            assert answer.status_code == 200, answer.text
        metrics = client.get("/metrics").text
    for role in ("context", "generation"):
        assert (
            len(set(re.findall(rf'disagg_proxy_worker_ready\{{[^}}]*role="{role}"[^}}]*\}} 1', metrics))) == 2
        )
    program.terminate()
    assert program.wait(SECONDS) == 0
    assert not stack.healthy("proxy")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing (Debian package prometheus)")
def test_prometheus_takes_its_files(stack: Stack, tmp_path: Path) -> None:
    for target, path in stack.files("prometheus").items():
        path.rename(tmp_path / Path(target).name)
    command = [str(PROMTOOL), "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout
