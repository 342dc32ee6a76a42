"""A proxy with simulated workers behind it, shared by the tests of a module that ask for the same one."""

import json
from typing import Any

import httpx
from e2e_bodies import path_of
from e2e_server import Kind, ServerThread
from program import eventually

from proxy.config.load import load_settings
from proxy.config.settings import Settings
from proxy.sim import RecordedRequest, Speed, ThreadedSimCluster

_SHOWN = "disagg_proxy_"


class Stack:
    """See the module's docstring.

    ``expected_leftover``: hand-offs that the test leaves to expire on purpose; every other one fails it.
    ``most_leftover``: so many more may be left, or be taken behind the request's back.
    """

    def __init__(self, kind: Kind, cluster: dict[str, Any], overrides: dict[str, Any]) -> None:
        self.kind = kind
        options = {"context": 1, "generation": 1, **cluster}
        options["speed"] = Speed(**options.get("speed", {}))
        self.cluster = ThreadedSimCluster(**options).start()
        try:
            urls = self.cluster.context_urls, self.cluster.generation_urls
            settings = settings_for(*urls, **overrides)
            self.server = ServerThread(settings, kind).start()
        except BaseException:
            self.cluster.stop()
            raise
        self.http = self._client()
        self.expected_leftover = 0
        self.most_leftover = 0
        self._leftover = 0
        eventually(lambda: self.server.service.ready, what="readiness")

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.server.port}", trust_env=False, timeout=20.0)

    def reconnect(self) -> None:
        """After an answer behind which the proxy closes the connection without having said so."""
        self.http.close()
        self.http = self._client()

    @property
    def port(self) -> int:
        return self.server.port

    def post(self, body: Any, path: str | None = None, **options: Any) -> httpx.Response:
        """Send a body to its route."""
        return self.http.post(path or path_of(body), json=body, **options)

    def requests(self, leg: str) -> list[RecordedRequest]:
        """What the workers got for a kind of leg since the test began."""
        return [
            request for worker in self.cluster.workers for request in worker.requests if request.leg == leg
        ]

    def only_request(self, leg: str) -> RecordedRequest:
        """The one leg of a kind."""
        (request,) = self.requests(leg)
        return request

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric that have these labels."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            head, _, value = line.rpartition(" ")
            sample, _, shown = head.partition("{")
            if sample == _SHOWN + name and all(f'{key}="{text}"' in shown for key, text in labels.items()):
                total += float(value)
        return total

    def begin(self) -> None:
        """Forget the traces of the test before."""
        for worker in self.cluster.workers:
            worker.clear_faults()
            worker.clear_records()
        self.server.loop.call_soon_threadsafe(self._forgive)
        self.http.cookies.clear()
        self._leftover = self.cluster.kv.leftover
        self.expected_leftover = 0
        self.most_leftover = 0

    def _forgive(self) -> None:
        for instance in self.server.service.registry.instances:
            instance.health.forgive()

    def check_settled(self) -> None:
        """Nothing of a finished test may be left: loads, busy connections, running engines, hand-offs."""
        for worker in self.cluster.workers:
            worker.clear_faults()
        engines = [worker.engine for worker in self.cluster.workers]
        eventually(lambda: not any(engine.running for engine in engines), what="idle engines")
        eventually(lambda: not self.metric("worker_in_flight"), what="zero load")
        eventually(lambda: not self.metric("worker_connections", state="busy"), what="no busy connections")
        left = self.cluster.kv.leftover - self._leftover - self.expected_leftover
        assert 0 <= left <= self.most_leftover, "hand-offs were left"

    def close(self) -> None:
        """Stop everything."""
        self.http.close()
        try:
            self.server.stop()
        finally:
            self.cluster.stop()


class Stacks:
    """Stacks by their options."""

    def __init__(self) -> None:
        self._stacks: dict[str, Stack] = {}

    def get(self, kind: Kind, cluster: dict[str, Any], overrides: dict[str, Any]) -> Stack:
        """A running stack with these options."""
        key = json.dumps([kind, cluster, overrides], sort_keys=True, default=str)
        stack = self._stacks.get(key)
        if stack is None:
            stack = self._stacks[key] = Stack(kind, cluster, overrides)
        return stack

    def close(self) -> None:
        """Stop all of them."""
        for stack in self._stacks.values():
            stack.close()


def settings_for(context_urls: list[str], generation_urls: list[str], **overrides: Any) -> Settings:
    """The configuration of a proxy in front of these workers."""
    given = {
        "hostname": "127.0.0.1",
        "port": 0,
        "context_servers": _section(context_urls),
        "generation_servers": _section(generation_urls),
        # The workers are there before the proxy; later probes would only cost time.
        "probe_interval": 60.0,
        # Workers and proxy share the processor, often the loop: who is late is not sick.
        "probe_timeout": 30.0,
        "drain_grace": 0,
        "drain_timeout": 5,
        # Tests are all failures and little traffic.
        "retry_budget": 10.0,
        **overrides,
    }
    return load_settings(None, overrides=given, environ={})


def _section(urls: list[str]) -> dict[str, Any]:
    return {"urls": urls, "router": {"type": "load_balancing"}}
