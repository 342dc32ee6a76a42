"""nginx and haproxy, as deploy/balancer configures them, in front of two proxies."""

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from loopback import network
from program import Program, eventually

from proxy.config.load import load_settings
from proxy.sim import Speed, ThreadedSimCluster

FOLDER = Path(__file__).parents[2] / "deploy" / "balancer"
NETWORK = network(3)
SECONDS = 60.0
COMMANDS = {
    "nginx.conf": ("nginx", "-p", "{folder}", "-g", "daemon off;", "-c", "{path}"),
    "haproxy.cfg": ("haproxy", "-db", "-f", "{path}"),
}
Start = Callable[..., Program]


def addressed(text: str) -> str:
    return text.replace("127.0.0.1", f"{NETWORK}.1")


class Stack:
    """Two proxies and a balancer; `url` is the balancer's."""

    def __init__(self, start: Start, config: str) -> None:
        self._start = start
        self._config = config
        self.url = f"http://{NETWORK}.1:8000"
        self.proxies = {port: self.start_proxy(port) for port in (8001, 8002)}

    def start_proxy(self, port: int) -> Program:
        program = self._start("serve", "-c", self._config, "--port", str(port))
        eventually(lambda: _healthy(f"http://{NETWORK}.1:{port}"), SECONDS, f"readiness of {port}")
        return program

    def replace(self, port: int) -> None:
        """End one proxy and start the next version at its place, as `systemctl restart` does."""
        self.proxies[port].terminate()
        assert self.proxies[port].wait(SECONDS) == 0
        self.proxies[port] = self.start_proxy(port)


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False, timeout=SECONDS).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module", params=COMMANDS)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("balancer")
    found = find(COMMANDS[request.param][0])
    with contextlib.ExitStack() as running:

        def start(*arguments: str, **options: Any) -> Program:
            program = Program(*arguments, directory=folder, **options)
            running.callback(program.stop)
            return program

        cluster = running.enter_context(
            ThreadedSimCluster(context=1, generation=2, speed=Speed(decode_ms=20))
        )
        config = folder / "disagg.yaml"
        document = {
            "hostname": f"{NETWORK}.1",
            "context_servers": {"urls": cluster.context_urls},
            "generation_servers": {"urls": cluster.generation_urls},
            # Longer than the time in which a balancer notices.
            "proxy": {"drain_grace": 2, "access_log": False},
        }
        config.write_text(yaml.safe_dump(document))
        made = Stack(start, str(config))
        path = folder / request.param
        path.write_text(addressed((FOLDER / request.param).read_text()))
        words = [each.format(folder=folder, path=path) for each in COMMANDS[request.param][1:]]
        start(command=(found, *words))
        eventually(lambda: _healthy(made.url), SECONDS, "the balancer")
        yield made


def find(program: str) -> str:
    """Where the program is; Debian puts it where not every user looks."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if found is None:
        pytest.skip(f"{program} is missing (Debian package {program})")
    return found


def body(**more: Any) -> dict[str, Any]:
    return {"model": "sim", "prompt": "one two", "max_tokens": 10, **more}


def test_tokens_go_out_as_they_come(stack: Stack) -> None:
    arrivals = []
    with httpx.stream(
        "POST", f"{stack.url}/v1/completions", json=body(stream=True), trust_env=False, timeout=SECONDS
    ) as answer:
        for piece in answer.iter_raw():
            arrivals += [time.monotonic()] * piece.count(b"data: {")
    assert len(arrivals) >= 10
    # Ten steps of 20 ms: gathered, they would come at once.
    assert arrivals[-1] - arrivals[0] > 0.1


def test_large_prompts_pass(stack: Stack) -> None:
    with httpx.Client(base_url=stack.url, trust_env=False, timeout=SECONDS) as client:
        assert client.post("/v1/completions", json=body(prompt="x" * 8_000_000)).status_code == 200


class Load:
    """Clients that ask one request after the other, half of them streams."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number % 2 == 0,)) for number in range(6)]
        self.served = 0
        self.failures: list[str] = []

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, stream: bool) -> None:
        with httpx.Client(base_url=self._url, trust_env=False, timeout=SECONDS) as client:
            while not self._stopping.is_set():
                try:
                    answer = client.post("/v1/completions", json=body(stream=stream))
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                    continue
                if answer.status_code == 200 and (not stream or answer.text.endswith("data: [DONE]\n\n")):
                    self.served += 1
                else:
                    self.failures.append(f"{answer.status_code} {answer.text[-200:]}")


@pytest.mark.long
def test_both_proxies_are_replaced_and_nothing_is_lost(stack: Stack) -> None:
    with Load(stack.url) as load:
        eventually(lambda: load.served > 20, SECONDS, "traffic")
        for port in stack.proxies:
            stack.replace(port)
            before = load.served
            eventually(lambda: load.served > before + 20, SECONDS, "traffic")  # noqa: B023  (called at once)
    assert load.failures == []


def test_timeouts_and_sizes_fit_the_proxys() -> None:
    settings = load_settings(None, overrides={}, environ={})
    nginx = (FOLDER / "nginx.conf").read_text()
    assert f"client_max_body_size {settings.proxy.max_body_bytes >> 20}m;" in nginx
    assert settings.server_keep_alive_timeout > 60
    assert "keepalive_timeout 60s;" in nginx
    cluster = yaml.safe_load((FOLDER / "envoy.yaml").read_text())["static_resources"]["clusters"][0]
    (options,) = cluster["typed_extension_protocol_options"].values()
    assert options["common_http_protocol_options"]["idle_timeout"] == "60s"


@pytest.mark.parametrize(("name", "check"), [("nginx.conf", "-t"), ("haproxy.cfg", "-c")])
def test_the_programs_accept_the_files_as_they_are(tmp_path: Path, name: str, check: str) -> None:
    found = find(COMMANDS[name][0])
    prefix = ("-p", str(tmp_path), "-c") if name == "nginx.conf" else ("-f",)
    done = subprocess.run(
        [found, check, *prefix, str(FOLDER / name)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
