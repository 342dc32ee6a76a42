"""A proxy in front of simulated workers, all in the running event loop."""

import asyncio
import gc
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

import uvicorn
from chaos_client import ChaosClient, ask
from e2e_server import Kind
from e2e_stack import settings_for

from proxy.app import Application
from proxy.lifecycle.service import Service
from proxy.serve import make_server
from proxy.sim import SimCluster, SimWorker, Speed

SECONDS = 30.0
KV_SECONDS = 6.0
_SAMPLE = re.compile(r"^disagg_proxy_(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


async def until(check: Callable[[], Any], what: str, seconds: float = SECONDS) -> None:
    """Wait until ``check()`` is true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not check():
        assert loop.time() < deadline, f"{what} did not happen within {seconds} s"
        await asyncio.sleep(0.005)


class ChaosProxy:
    """One proxy and its own workers, as an asynchronous context manager.

    ``cluster`` are options of the simulated workers, ``overrides`` of the proxy's configuration.
    """

    def __init__(self, kind: Kind = "own", cluster: dict[str, Any] | None = None, **overrides: Any) -> None:
        options = {"context": 2, "generation": 2, "kv_seconds": KV_SECONDS, **(cluster or {})}
        options["speed"] = Speed(**options.get("speed", {}))
        self.cluster = SimCluster(**options)
        self._kind = kind
        self._overrides = overrides
        self._app: Application
        self._server: Any
        self._serving: asyncio.Task[None]
        self.port = 0

    @property
    def service(self) -> Service:
        """What all requests share."""
        assert self._app.service is not None
        return self._app.service

    @property
    def client_connections(self) -> int:
        """Connections of clients."""
        return len(self._server.server_state.connections)

    @property
    def stalled_clients(self) -> int:
        """Connections of clients that have so much to take that nothing more is written."""
        return sum(connection.flow.write_paused for connection in self._server.server_state.connections)

    @property
    def running_requests(self) -> int:
        """Requests that the server has given to the application."""
        return len(self._server.server_state.tasks)

    def stop(self) -> None:
        """Begin to end; only under our own server."""
        self._server.stop()

    def workers(self, leg: str) -> list[SimWorker]:
        """The simulated workers of a role."""
        return self.cluster.context_workers if leg == "context" else self.cluster.generation_workers

    def add_fault(self, leg: str, **fields: Any) -> None:
        """Switch a fault on for all workers of a role."""
        for worker in self.workers(leg):
            worker.add_fault(leg=leg, **fields)

    def clear_faults(self) -> None:
        """Switch all faults off."""
        for worker in self.cluster.workers:
            worker.clear_faults()

    def legs(self, leg: str) -> int:
        """How many legs of a kind workers have read."""
        return sum(worker.legs[leg] for worker in self.cluster.workers)

    @property
    def held(self) -> int:
        """Hand-offs that wait for a generation worker."""
        return self.cluster.kv.counts().held

    @property
    def load(self) -> int:
        """Legs that the proxy counts as running."""
        return sum(worker.in_flight for worker in self.service.registry.workers)

    @property
    def busy_connections(self) -> int:
        """Connections to workers that run an exchange, or are lost to the pool."""
        pools = [worker.pool for worker in self.service.registry.workers]
        return sum(pool.open_connections - pool.idle_connections for pool in pools)

    async def settled(self) -> None:
        """Nothing runs any more: engines, loads, drains, connections of clients and busy ones to workers."""
        engines = [worker.engine for worker in self.cluster.workers]
        await until(lambda: not any(engine.running or engine.waiting for engine in engines), "idle engines")
        await until(lambda: not self.service.orphans.running, "the end of the drains")
        await until(lambda: not self.load, "zero load")
        await until(lambda: not self.busy_connections, "no busy connections")
        await until(lambda: not self.client_connections, "no connections of clients")

    async def connect(self) -> ChaosClient:
        """A client's connection."""
        return await ChaosClient(self.port).open()

    async def metric(self, name: str) -> list[tuple[dict[str, str], int]]:
        """The samples of a metric with their labels."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        return [
            (dict(_LABEL.findall(labels)), int(float(value)))
            for found, labels, value in _SAMPLE.findall(text)
            if found == name
        ]

    async def outcomes(self) -> Counter[str]:
        """Finished inference requests by outcome."""
        counts: Counter[str] = Counter()
        for labels, count in await self.metric("requests_total"):
            if count and labels["route"].endswith("completions"):
                counts[labels["outcome"]] += count
        return counts

    async def ask(self, path: str, body: Any, **headers: str) -> Any:
        """One request on a connection of its own."""
        return await ask(
            self.port, path, body, {name.replace("_", "-"): text for name, text in headers.items()}
        )

    async def __aenter__(self) -> Self:
        await self.cluster.start()
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def _start(self) -> None:
        urls = self.cluster.context_urls, self.cluster.generation_urls
        settings = settings_for(*urls, **{"worker_version": self.cluster.settings.profile, **self._overrides})
        if self._kind == "own":
            self._server = make_server(settings)
            gc.unfreeze()  # `make_server` is made for a process that ends with its server
            self._app = self._server.config.app
        else:
            self._app = Application(settings)
            config = uvicorn.Config(
                self._app,
                host="127.0.0.1",
                port=0,
                http="httptools",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
            )
            self._server = uvicorn.Server(config)
        self._serving = asyncio.ensure_future(self._server.serve())
        await until(lambda: self._server.started, "the start")
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        await until(lambda: self.service.ready, "readiness")
        workers = self.service.registry.workers
        # Under load a worker can be ready and too busy to tell.
        await until(lambda: all(worker.instance.models for worker in workers), "what the workers serve")

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        try:
            if self._kind == "own":
                self._server.stop()
            else:
                self._server.should_exit = True
            await asyncio.wait_for(self._serving, SECONDS)
        finally:
            await self.cluster.stop()
