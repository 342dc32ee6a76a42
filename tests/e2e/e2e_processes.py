"""Simulated workers and proxies as processes, which talk to each other over sockets only."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from e2e_server import Kind
from program import Program, eventually

_PLAIN = Path(__file__).with_name("plain_server.py")
# A single process, and a fleet's supervisor.
_LISTENS = r"(?:running on http://127\.0\.0\.1:|listening on 127\.0\.0\.1 port )(\d+)"


class Processes:
    """Starts them through the fixtures `run_program` and `write_config`."""

    def __init__(self, run_program: Callable[..., Program], write_config: Callable[..., str]) -> None:
        self._run = run_program
        self._write = write_config
        self.workers: list[tuple[str, str]] = []  # role and address

    def sim(self, *options: str, context: int = 1, generation: int = 1) -> Program:
        """Start workers and note their addresses."""
        counts = ("--context", str(context), "--generation", str(generation))
        program = self._run("sim", "--base-port", "0", *counts, *options)
        self.workers += eventually(lambda: self._ready(program, context + generation), what="the workers")
        return program

    @staticmethod
    def _ready(program: Program, count: int) -> list[tuple[str, str]]:
        assert program.process.poll() is None, program.err
        lines = [line for line in program.out.splitlines() if " ready at " in line]
        if len(lines) < count:
            return []
        return [
            ("context" if "context" in name else "generation", address)
            for name, _, address in (line.partition(" ready at ") for line in lines)
        ]

    def urls(self, role: str) -> list[str]:
        """The addresses of a role."""
        return [address for each, address in self.workers if each == role]

    def config(self, proxy: dict[str, Any] | None = None, **top: Any) -> str:
        """Write a file as operators do, and return its path."""
        document = {
            "hostname": "127.0.0.1",
            "port": 0,
            "context_servers": {
                "num_instances": len(self.urls("context")),
                "urls": self.urls("context"),
                "router": {"type": "load_balancing"},
            },
            "generation_servers": {
                "num_instances": len(self.urls("generation")),
                "urls": self.urls("generation"),
                "router": {"type": "round_robin"},
            },
            "proxy": {"drain_grace": 0, "probe_interval": 0.2, **(proxy or {})},
            **top,
        }
        return self._write(document)

    def serve(self, config: str, kind: Kind = "own", *options: str) -> "Proxy":
        """Start a proxy and wait until it is ready."""
        if kind == "own":
            program = self._run("serve", "-c", config, *options)
        else:
            program = self._run(config, command=(sys.executable, str(_PLAIN)))
        port = int(program.wait_for(_LISTENS)[1])
        proxy = Proxy(program, port)
        eventually(lambda: proxy.get("/health").status_code == 200, what="readiness")
        return proxy


class Proxy:
    """A running proxy and where it listens."""

    def __init__(self, program: Program, port: int) -> None:
        self.program = program
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, trust_env=False, timeout=10)

    def post(self, path: str, body: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, trust_env=False, timeout=20)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric that have these labels."""
        total = 0.0
        for line in self.get("/metrics").text.splitlines():
            head, _, value = line.rpartition(" ")
            sample, _, shown = head.partition("{")
            if sample == f"disagg_proxy_{name}" and all(f'{k}="{v}"' in shown for k, v in labels.items()):
                total += float(value)
        return total
