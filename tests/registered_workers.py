"""A proxy whose workers register by themselves, and simulated workers in processes of their own."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import yaml
from free_port import free_port
from program import Program, eventually

from proxy.config.load import load_settings
from proxy.lifecycle.service import Service
from proxy.serve import make_server

RunProgram = Callable[..., Program]

HEARTBEAT = "0.5"
INACTIVE = 3
_opener = build_opener(ProxyHandler({}))


def ask(url: str, body: Any = None) -> Any:
    """The JSON answer, None if there is none."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"content-type": "application/json"})
    try:
        with _opener.open(request, timeout=10) as answer:
            return json.load(answer)
    except (URLError, HTTPException, OSError, ValueError):
        return None


@asynccontextmanager
async def serving(**keys: Any) -> AsyncIterator[tuple[Service, str]]:
    """The proxy in this event loop, and its url."""
    overrides = {"hostname": "127.0.0.1", "port": 0, "drain_grace": 0, "probe_interval": 0.2, **keys}
    server = make_server(load_settings(None, overrides=overrides, environ={}))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    app: Any = server.config.app
    try:
        yield app.service, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.hurry()
        await asyncio.wait_for(task, 30.0)


class RegisteringProxy:
    """``disagg-proxy serve`` with ``processes``. ``cluster``: its ``disagg_cluster``."""

    def __init__(
        self, run_program: RunProgram, directory: Path, processes: int, cluster: dict[str, Any], **keys: Any
    ) -> None:
        self.port = free_port()
        uri = cluster.get("cluster_uri", f"http://127.0.0.1:{self.port}")
        document = {
            "hostname": "127.0.0.1",
            "port": self.port,
            "num_workers": processes,
            "disagg_cluster": {"inactive_timeout_sec": INACTIVE, **cluster, "cluster_uri": uri},
            "proxy": {"drain_grace": 0, "probe_interval": 0.2, **keys},
        }
        self.path = path = directory / f"proxy-{self.port}.yaml"
        path.write_text(yaml.safe_dump(document))
        self.uri = uri
        self.url = f"http://127.0.0.1:{self.port}"
        self.program = run_program("serve", "-c", str(path))
        pattern = r"running on http" if processes == 1 else rf"process {processes - 1} serves"
        self.program.wait_for(pattern)

    def ask(self, path: str, body: Any = None) -> Any:
        """The JSON answer of whichever process, None if there is none."""
        return ask(f"{self.url}{path}", body)

    def workers(self) -> list[str]:
        """The addresses of all workers, context workers first."""
        info = self.ask("/cluster_info")
        if info is None:
            return []
        return [address for role in ("context", "generation") for address in info["server_lists"][role]]

    def complete(self) -> str | None:
        """The text of an answer, None if there is none."""
        answer = self.ask("/v1/completions", {"model": "sim", "prompt": "hello", "max_tokens": 4})
        return None if answer is None else answer["choices"][0]["text"]

    def wait_for(self, *addresses: str, seconds: float = 20.0) -> None:
        """Wait until all processes know these workers and no others."""

        def know() -> bool:
            # Connections are spread over the processes.
            return all(sorted(self.workers()) == sorted(addresses) for _ in range(8))

        eventually(know, seconds, f"the list {addresses}")


class RegisteringWorkers:
    """``disagg-proxy sim``: one context and one generation worker, always at the same addresses."""

    def __init__(self, run_program: RunProgram, uri: str, *options: str) -> None:
        self._run = run_program
        self._port = free_port(neighbours=1)
        self.addresses = [f"127.0.0.1:{self._port}", f"127.0.0.1:{self._port + 1}"]
        self._options = (
            *("--context", "1", "--generation", "1", "--base-port", str(self._port)),
            *("--disagg_cluster_uri", uri, "--heartbeat_interval_sec", HEARTBEAT),
            *("--inactive_timeout_sec", str(INACTIVE), *options),
        )
        self.program = self._start()

    def _start(self) -> Program:
        program = self._run("sim", *self._options)
        program.wait_for("generation-0 ready")
        return program

    def leave(self) -> None:
        """As SIGTERM: they deregister."""
        self.program.process.terminate()
        assert self.program.process.wait(20) == 0

    def crash(self) -> None:
        """As SIGKILL: nobody is told."""
        self.program.process.kill()
        self.program.process.wait()

    def restart(self) -> None:
        """New processes at the same addresses."""
        self.program = self._start()
