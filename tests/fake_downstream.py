"""Our protocol on a scripted transport: raw requests in, raw answers out, a clock that the tests move."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import uvicorn
from fake_loop import FakeLoop
from fake_transport import FakeTransport
from uvicorn.server import ServerState

from proxy.downstream.cycle import EXTENSION, RequestCycle
from proxy.downstream.limits import Limits
from proxy.downstream.protocol import RelayProtocol, protocol_class

GET = b"GET /a HTTP/1.1\r\nhost: p\r\n\r\n"
DATE = b"date: today\r\n"

Body = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


class App:
    """Notes each request and answers it, at once unless told otherwise.

    Attributes:
        scopes, bodies: of the requests so far.
        behaviour: what it does instead of answering.
    """

    def __init__(self, behaviour: Body | None = None) -> None:
        self.scopes: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.behaviour = behaviour

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if self.behaviour is not None:
            await self.behaviour(scope, receive, send)
            return
        message = await receive()
        assert message["type"] == "http.request"
        assert not message["more_body"]
        self.bodies.append(message["body"])
        await answer(send, b"%d" % len(self.bodies))


async def answer(send: Any, body: bytes, status: int = 200) -> None:
    """A whole ASGI answer."""
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Held:
    """A behaviour: each request waits for the test, which finds it in `cycles` and ends it with `release`."""

    def __init__(self) -> None:
        self.cycles: list[RequestCycle] = []
        self._ends: list[asyncio.Future[None]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        end = asyncio.get_running_loop().create_future()
        self.cycles.append(scope["extensions"][EXTENSION])
        self._ends.append(end)
        await end

    def release(self, number: int = -1) -> None:
        self._ends[number].set_result(None)


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """One client connection.

    Args:
        app: the application.
        limits: of the protocol.
        options: for `uvicorn.Config`.
    """

    def __init__(self, app: Any, limits: Limits | None = None, **options: Any) -> None:
        config = uvicorn.Config(
            app, http=protocol_class(limits or Limits()), lifespan="off", log_config=None, **options
        )
        config.load()
        self.loop = FakeLoop()
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"today")]
        self.protocol: RelayProtocol = config.http_protocol_class(  # type: ignore[assignment, call-arg]
            config=config, server_state=self.state, app_state={}, _loop=self.loop
        )
        self.transport = FakeTransport(self.protocol)

    async def send(self, *pieces: bytes) -> None:
        """The client sends these pieces; then everything runs that can."""
        for piece in pieces:
            self.transport.receive(piece)
        await settle()

    def take(self) -> bytes:
        return self.transport.take()

    def responses(self) -> list[Response]:
        """The answers that were written since the last call, all of them complete."""
        return parse(self.transport.take())

    @property
    def closed(self) -> bool:
        return self.transport.is_closing()

    @property
    def tasks(self) -> int:
        return len(self.state.tasks)


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


def parse(data: bytes) -> list[Response]:
    """Split a stream of answers strictly; a close-delimited one takes the rest."""
    found = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, f"no whole head: {head!r}"
        line, *lines = head.split(b"\r\n")
        version, status, _ = line.split(b" ", 2)
        assert version == b"HTTP/1.1"
        headers: dict[str, str] = {}
        for name, _, value in (line.partition(b": ") for line in lines):
            assert name.decode() not in headers, f"{name!r} twice"
            headers[name.decode()] = value.decode()
        assert not {"content-length", "transfer-encoding"} <= headers.keys()
        if status in (b"204", b"304", b"100"):
            body = b""
        elif "content-length" in headers:
            length = int(headers["content-length"])
            body, data = data[:length], data[length:]
            assert len(body) == length, "the body is too short"
        elif headers.get("transfer-encoding") == "chunked":
            body, data = _chunks(data)
        else:
            assert headers["connection"] == "close"
            body, data = data, b""
        found.append(Response(int(status), headers, body))
    return found


def _chunks(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, end, data = data.partition(b"\r\n")
        assert end, "no whole chunk"
        length = int(size, 16)
        assert data[length : length + 2] == b"\r\n"
        body, data = body + data[:length], data[length + 2 :]
        if not length:
            return body, data
