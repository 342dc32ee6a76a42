"""A small fleet under load, for the page that shows it."""

import itertools
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml
from program import Program, eventually

from proxy.sim import ThreadedSimCluster
from proxy.sim.engine import Speed

PROCESSES = 2


class ShownProxy:
    """Two processes, two workers of each role, and clients that keep them busy until the end."""

    def __init__(self, directory: Path, *, clients: int = 4, context: int = 2, **keys: Any) -> None:
        speed = Speed(prefill_tokens_per_second=5_000, decode_ms=4.0)
        self.cluster = ThreadedSimCluster(context=context, generation=2, speed=speed, keep_alive_seconds=60.0)
        self._directory = directory
        self._keys = {"admin_listen": "127.0.0.1:0", "probe_interval": 0.2, "drain_grace": 0.1, **keys}
        self._clients = clients
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.program: Program | None = None

    def __enter__(self) -> Self:
        self.cluster.start()
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self._threads = [
            threading.Thread(target=self._load, args=(number,)) for number in range(self._clients)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self.stop()
        self.cluster.stop()

    def start(self) -> None:
        """Start the proxy, the second time on the ports of the first one."""
        program = self.program
        document = {
            "hostname": "127.0.0.1",
            "port": 0 if program is None else self.port,
            "num_workers": PROCESSES,
            "context_servers": {"urls": self.cluster.context_urls},
            "generation_servers": {"urls": self.cluster.generation_urls},
            "proxy": self._keys,
        }
        path = self._directory / "disagg.yaml"
        path.write_text(yaml.safe_dump(document))
        self.program = Program("serve", "-c", str(path), directory=self._directory)
        self.port = int(self.program.wait_for(r"listening on 127\.0\.0\.1 port (\d+)")[1])
        admin_port = self.program.wait_for(r"admin routes on 127\.0\.0\.1 port (\d+)")[1]
        self._keys["admin_listen"] = f"127.0.0.1:{admin_port}"
        self.admin_url = f"http://127.0.0.1:{admin_port}"
        eventually(self._ready, what="readiness")

    def stop(self) -> None:
        """End the proxy."""
        if self.program is not None:
            self.program.stop()

    def _ready(self) -> bool:
        with httpx.Client(trust_env=False) as client:
            try:
                return client.get(f"http://127.0.0.1:{self.port}/health/ready").status_code == 200
            except httpx.HTTPError:
                return False

    def _load(self, first: int) -> None:
        for number in itertools.count(first):
            if self._stopping.is_set():
                return
            # A connection of its own each, so that both processes get some.
            with httpx.Client(timeout=30, trust_env=False) as client:
                try:
                    client.post(f"http://127.0.0.1:{self.port}/v1/chat/completions", json=_body(number))
                except httpx.HTTPError:
                    self._stopping.wait(0.1)


def _body(number: int) -> dict[str, Any]:
    words = "word " * (20 + number * 37 % 400)
    wrong = {"stream": "yes"} if number % 100 == 70 else {}
    return {
        "model": "sim",
        "messages": [{"role": "user", "content": words}],
        "max_tokens": 20 + number * 13 % 40,
        "stream": number % 4 != 0,
        **wrong,
    }
