"""The proxy and simulated workers in the test's own event loop, on real sockets."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import httpx
import uvicorn

from proxy.app import Application
from proxy.config.load import load_settings
from proxy.config.settings import Settings
from proxy.lifecycle.service import Service
from proxy.serve import make_server
from proxy.sim import SimCluster
from proxy.sim.profiles import PROFILES
from proxy.sim.validation import Validator
from proxy.sim.worker import SimWorker

SECONDS = 10.0
CHAT = "/v1/chat/completions"


def chat(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "sim", "messages": [{"role": "user", "content": text}], "max_tokens": 8, **fields}


async def eventually(check: Any, what: str = "it") -> None:
    """Wait until ``check()`` is true."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    while not check():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not happen"
        await asyncio.sleep(0.005)


class RunningProxy:
    """A server that serves, its workers and a client."""

    def __init__(self, server: Any, cluster: SimCluster, client: httpx.AsyncClient, serving: Any) -> None:
        self.server = server
        self.cluster = cluster
        self.client = client
        self.serving = serving
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def app(self) -> Any:
        return self.server.config.app

    @property
    def service(self) -> Service:
        return self.app.service

    @property
    def port(self) -> int:
        return int(self.server.servers[0].sockets[0].getsockname()[1])

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.app.admin.port}"

    def send(self, body: Any = None, **options: Any) -> "asyncio.Task[httpx.Response]":
        """Send a chat request in a task of its own."""
        return asyncio.create_task(self.client.post(CHAT, json=body or chat(), **options))

    async def open(self, body: Any, *headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a chat request over a connection of its own and leave the answer to the caller."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        data = json.dumps(body).encode()
        lines = [f"POST {CHAT} HTTP/1.1", "host: proxy", f"content-length: {len(data)}", *headers]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        return reader, writer

    async def hang_up(self) -> None:
        """Close what `open` has opened, whatever the test has forgotten."""
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def hold(self, leg: str, **fields: Any) -> None:
        """Workers of this leg do not answer."""
        for worker in self.cluster.workers:
            worker.board.add({"kind": "hang", "leg": leg, **fields})

    def clear_faults(self) -> None:
        """Legs that hang already go on hanging."""
        for worker in self.cluster.workers:
            worker.board.clear()

    def legs(self, role: str) -> int:
        """How many legs the workers of a role have got."""
        workers = self.cluster.context_workers if role == "context" else self.cluster.generation_workers
        return sum(worker.legs.total() for worker in workers)

    def assert_settled(self) -> None:
        admission = self.service.admission
        assert (admission.in_flight, admission.in_context) == (0, 0)
        assert (admission.queued, admission.queued_bytes) == (0, 0)
        assert all(worker.in_flight == 0 for worker in self.service.registry.workers)


def settings_for(cluster: SimCluster, **keys: Any) -> Settings:
    sections: dict[str, Any] = {
        "hostname": "127.0.0.1",
        "port": 0,
        "context_servers": {"urls": cluster.context_urls},
        "generation_servers": {"urls": cluster.generation_urls},
        "drain_grace": 0,
        "drain_timeout": 5,
        "probe_interval": 0.2,
    }
    return load_settings(None, overrides={**sections, **keys}, environ={})


def become(worker: SimWorker, profile: str) -> None:
    """Make a worker one of another version."""
    worker.profile = PROFILES[profile]
    worker.validator = Validator(worker.profile)


@asynccontextmanager
async def running_proxy(
    *,
    cluster: dict[str, Any] | None = None,
    kind: Literal["own", "uvicorn"] = "own",
    url: str = "http",
    client: dict[str, Any] | None = None,
    profiles: dict[str, str] | None = None,
    **keys: Any,
) -> AsyncIterator[RunningProxy]:
    """Start workers (options in ``cluster``), the proxy (``keys`` of the configuration) and a client.

    ``profiles``: worker's name -> its version, where it is not the cluster's.
    """
    made = SimCluster(**{"context": 1, "generation": 1, "keep_alive_seconds": 60.0, **(cluster or {})})
    for worker in made.workers:
        become(worker, (profiles or {}).get(worker.name, worker.profile.name))
    async with made as workers:
        server = _make_server(settings_for(workers, **keys), kind)
        serving = asyncio.create_task(server.serve())
        await eventually(lambda: serving.done() or server.started, "the start")
        if serving.done():
            serving.result()
        app = server.config.app
        await eventually(lambda: app.service.ready, "readiness")
        port = server.servers[0].sockets[0].getsockname()[1]
        options: dict[str, Any] = {"timeout": SECONDS, "trust_env": False, **(client or {})}
        async with httpx.AsyncClient(base_url=f"{url}://127.0.0.1:{port}", **options) as http:
            proxy = RunningProxy(server, workers, http, serving)
            try:
                yield proxy
            finally:
                if kind == "own":
                    server.hurry()
                server.should_exit = True
                try:
                    await asyncio.wait_for(serving, SECONDS)
                finally:
                    await proxy.hang_up()
    # Transports that were closed last are only gone after a turn of the loop or two.
    for _ in range(3):
        await asyncio.sleep(0)


def _make_server(settings: Settings, kind: str) -> Any:
    if kind == "own":
        return make_server(settings)
    # As little of ours as possible: the application has to work under any ASGI server.
    config = uvicorn.Config(
        Application(settings),
        host="127.0.0.1",
        port=0,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
    )
    return _PlainServer(config)


class _PlainServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
