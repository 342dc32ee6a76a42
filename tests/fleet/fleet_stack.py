"""`disagg-proxy serve --workers N` in front of simulated workers of this process."""

import os
import re
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import yaml
from program import Program, eventually

from proxy.sim import Speed, ThreadedSimCluster


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class FleetStack:
    """A running fleet.

    ``processes`` 1 is a single process without supervisor. The last of the three context workers is not listed.

    ``cluster``: workers of another stack, to be served by both. ``workers``: options of workers of its own.
    ``listed``: how many of the context workers the configuration names. ``router``: of both roles; ``top``: more keys.
    """

    def __init__(
        self,
        run_program: Callable[..., Program],
        path: Path,
        processes: int,
        *,
        decode_ms: float = 0.0,
        environment: dict[str, str] | None = None,
        cluster: ThreadedSimCluster | None = None,
        workers: dict[str, Any] | None = None,
        listed: int = 2,
        router: str | None = None,
        top: dict[str, Any] | None = None,
        **keys: Any,
    ) -> None:
        self.processes = processes
        self.path = path
        self.router = {"router": {"type": router}} if router else {}
        self.top = top or {}
        self.keys = {"drain_grace": 0.2, "probe_interval": 0.2, **keys}
        if cluster is None:
            speed = Speed(decode_ms=decode_ms)
            options = {"context": 3, "generation": 2, "speed": speed, "keep_alive_seconds": 60.0}
            cluster = ThreadedSimCluster(**{**options, **(workers or {})}).start()
        self.cluster = cluster
        self.write_config(self.cluster.context_urls[:listed])
        self._run_program = run_program
        self.program = self.run_again(environment=environment)
        self.port = self._port()
        self.base_url = f"http://127.0.0.1:{self.port}"

    def run_again(self, **options: Any) -> Program:
        """The same command once more."""
        arguments = ("serve", "-c", str(self.path), "--workers", str(self.processes))
        return self._run_program(*arguments, **options)

    def write_config(self, context_urls: list[str], **top: Any) -> None:
        """Write the configuration with these context workers."""
        document = {
            "hostname": "127.0.0.1",
            "port": 0,
            "context_servers": {"urls": context_urls, **self.router},
            "generation_servers": {"urls": self.cluster.generation_urls, **self.router},
            "proxy": self.keys,
            **self.top,
            **top,
        }
        self.path.write_text(yaml.safe_dump(document))

    def _port(self) -> int:
        if self.processes == 1:
            return int(self.program.wait_for(r"running on http://127\.0\.0\.1:(\d+)")[1])
        return int(self.program.wait_for(r"listening on 127\.0\.0\.1 port (\d+)")[1])

    def wait_ready(self) -> None:
        """Wait until every process accepts and knows its workers."""
        eventually(
            lambda: self.metrics().get("disagg_proxy_processes") == self.processes, what="all processes"
        )
        eventually(lambda: self.metrics()["disagg_proxy_ready"] == 1.0, what="readiness")

    def get(self, path: str) -> tuple[int, str]:
        """Status and body, on a connection of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """A scrape of whichever process answers; empty while the one that was asked dies."""
        try:
            _, text = self.get("/metrics")
        except (OSError, HTTPException):
            return {}
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def served(self) -> float:
        """Requests of the load that the metrics count."""
        name = 'disagg_proxy_requests_total{model="sim",outcome="ok",route="/v1/completions",stream="false"}'
        return self.metrics().get(name, 0.0)

    def pids(self) -> list[int]:
        """Of the present processes, by index."""
        found = re.findall(r"process (\d+) has started \(pid (\d+)\)", self.program.err)
        return [int(pid) for _, pid in sorted({int(index): pid for index, pid in found}.items())]

    def process_of(self) -> dict[str, set[int]]:
        """Which processes each connection of the load met, from the access log."""
        met: dict[str, set[int]] = {}
        for process, name in re.findall(
            r"\[(\d+)\] INFO proxy\.access: request_id=(c\d+)\.", self.program.err
        ):
            met.setdefault(name, set()).add(int(process))
        return met

    def requests_by_process(self) -> Counter[int]:
        """Requests of the load that each process has in its access log."""
        lines = re.findall(r"\[(\d+)\] INFO proxy\.access: request_id=c", self.program.err)
        return Counter(map(int, lines))

    def stop(self) -> None:
        """End everything."""
        pids = self.pids()
        self.program.stop()
        for pid in pids:
            if alive(pid):
                os.kill(pid, 9)
        self.cluster.stop()
