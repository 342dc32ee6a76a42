"""A service whose workers are scripted: raw requests in, raw answers out, no sockets, no probes."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

from fake_pool import settle
from fake_transport import FakeTransport

from proxy.config.address import parse_worker_address
from proxy.config.settings import ProxySettings, ServerSection, Settings
from proxy.errors import ProxyError
from proxy.lifecycle.client import Relayed
from proxy.lifecycle.context_first import serve_context_first
from proxy.lifecycle.passage import Passage
from proxy.lifecycle.record import RequestRecord
from proxy.lifecycle.service import Service
from proxy.upstream.connection import WorkerConnection
from proxy.wire.members import split_object
from proxy.wire.request import read_request
from proxy.workers.instance import Instance

Step = Callable[[FakeTransport], None] | bytes
"""What a worker does when a request has arrived: send these bytes, or something else."""

REQUEST_ID = 1234567890123456789
HAND_OFF = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "B"},
            "finish_reason": "length",
            "disaggregated_params": {
                "request_type": "context_only",
                "first_gen_tokens": [7],
                "ctx_request_id": REQUEST_ID,
                "encoded_opaque_state": "AAEC",
                "disagg_request_id": REQUEST_ID,
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    "prompt_token_ids": [1, 2, 3],
}
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b"data: 1\n\n"
FRAME = b"9\r\ndata: 1\n\n\r\n"
END = b"0\r\n\r\n"
STREAM = STREAM_HEAD + FRAME + END


def reply(value: Any, status: int = 200, *headers: bytes) -> bytes:
    """A whole answer."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %d x\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
        status,
        lines,
        len(body),
        body,
    )


def finished(text: str = "Blue") -> bytes:
    """A context answer that is complete by itself."""
    answer = json.loads(json.dumps(HAND_OFF))
    answer["choices"][0] |= {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return reply(answer)


def lose(transport: FakeTransport) -> None:
    """The connection ends without a byte."""
    transport.lose()


def nothing(transport: FakeTransport) -> None:
    """Silence."""


class ScriptedWorker:
    """Takes the place of an instance's sockets.

    Attributes:
        steps: what it does with the next requests; the last one is repeated.
        requests: bodies that have arrived.
        refuses: errors of the next connects.
        transports: of its connections.
    """

    def __init__(self, name: str, log: list[str], instance: Instance) -> None:
        self.name = name
        self.steps: list[Step] = []
        self.requests: list[dict[str, Any]] = []
        self.heads: list[bytes] = []
        self.refuses: list[Exception] = []
        self.transports: list[FakeTransport] = []
        self.instance = instance
        self._log = log
        instance.connections._open_connection = self._open  # type: ignore[method-assign]
        instance.health.probe_answered(0.001)

    async def _open(self) -> WorkerConnection:
        if self.refuses:
            self._log.append(f"{self.name} refuses")
            raise self.refuses.pop(0)
        pool = self.instance.connections
        connection = WorkerConnection(pool, pool._loop)
        self.transports.append(_Listening(connection, self))
        return connection

    def arrived(self, transport: FakeTransport, request: bytes) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        self.heads.append(head)
        self.requests.append(json.loads(body))
        self._log.append(self.name)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, bytes):
            transport.receive(step)
        else:
            step(transport)

    @property
    def in_flight(self) -> int:
        return sum(worker.in_flight for worker in self.instance.workers)


class _Listening(FakeTransport):
    def __init__(self, protocol: Any, worker: ScriptedWorker) -> None:
        super().__init__(protocol)
        self._worker = worker

    def writelines(self, pieces: Any) -> None:
        super().writelines(pieces)
        asyncio.get_running_loop().call_soon(self._worker.arrived, self, self.take())


class Client:
    """Takes what it is told.

    Attributes:
        status, headers, body: of the answer.
        complete: the end of the answer has been told; `cut` that it will never be.
    """

    def __init__(self) -> None:
        self.gone = False
        self.status = 0
        self.begun = False
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.complete = False
        self.cut = False
        self.between_events = True
        self._callback: Callable[[], None] | None = None

    def leave(self) -> None:
        self.gone = True
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def watch(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    async def respond(self, status: int, headers: Any, body: bytes) -> None:
        assert not self.status
        self.status, self.headers, self.body, self.complete = status, dict(headers), body, True

    async def relay(
        self, status: int, headers: Any, source: WorkerConnection, through: Any = None
    ) -> Relayed:
        assert not self.status
        self.status, self.headers = status, dict(headers)
        done: asyncio.Future[ProxyError | None] = asyncio.get_running_loop().create_future()
        client = self

        class Sink:
            framed = False

            def write(self, data: bytes) -> None:
                client.body += data

            def end(self, data: bytes) -> None:
                client.body += data
                client.complete = True
                done.set_result(None)

            def broken(self, error: ProxyError) -> None:
                if not done.done():
                    done.set_result(error)

        source.relay(Sink() if through is None else through(Sink()))
        error = await done
        return Relayed(error, len(self.body), 1.0 if self.body else 0.0)

    def comment(self, headers: Any) -> bool:
        raise NotImplementedError

    async def break_off(self, last: bytes | None) -> None:
        self.cut = last is None
        self.body += last or b""

    def close(self) -> None:
        raise NotImplementedError


class World:
    """Workers c0, c1, ... and g0, g1, ...; `log` tells who was asked, in order."""

    def __init__(self, context: int = 1, generation: int = 1, *, max_retries: int = 1, **proxy: Any) -> None:
        settings = Settings(
            context_servers=_section("c", context),
            generation_servers=_section("g", generation),
            max_retries=max_retries,
            node_id=1,
            proxy=ProxySettings(**{"worker_version": "jul", **proxy}),
        )
        self.service = Service(settings)
        self.log: list[str] = []
        self.workers: dict[str, ScriptedWorker] = {}
        for instance in self.service.registry.instances:
            name = instance.address.host
            self.workers[name] = ScriptedWorker(name, self.log, instance)
        self.client = Client()
        self.record = RequestRecord("req-1", 1.0)

    def __getitem__(self, name: str) -> ScriptedWorker:
        return self.workers[name]

    def script(self, **steps: list[Step]) -> None:
        for name, these in steps.items():
            self.workers[name].steps = these

    def start(self, *, stream: bool = False, total: float = 0.0, **members: Any) -> asyncio.Task[None]:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream, **members}
        request = read_request(split_object(json.dumps(body).encode()), chat=True)
        passage = Passage(
            self.service,
            request,
            cast(Any, self.client),
            self.record,
            target=b"/v1/chat/completions",
            headers=b"x-request-id: req-1\r\n",
            response_headers=[(b"x-request-id", b"req-1")],
            total=total,
        )
        return asyncio.get_running_loop().create_task(serve_context_first(passage))

    async def ask(self, **options: Any) -> ProxyError | None:
        """Serve one request; the error that the caller would answer."""
        try:
            async with asyncio.timeout(5):
                await self.start(**options)
        except ProxyError as error:
            return error
        return None

    async def close(self) -> None:
        """Nothing may be left over."""
        while self.service.orphans.running:
            await asyncio.sleep(0.001)
        await settle()
        for worker in self.workers.values():
            assert worker.in_flight == 0
            pool = worker.instance.connections
            assert pool.open_connections == pool.idle_connections
            assert pool.open_connections == sum(not transport.is_closing() for transport in worker.transports)
        await self.service.close()
        await settle()


def _section(prefix: str, number: int) -> ServerSection:
    urls = tuple(parse_worker_address(f"{prefix}{index}:8000") for index in range(number))
    return ServerSection(num_instances=number, urls=urls)
