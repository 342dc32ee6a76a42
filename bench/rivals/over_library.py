"""This project's program, all of it, with a library's HTTP client in the place of its own worker client.

`BENCH_CLIENT=aiohttp python -m bench.rivals.over_library serve -c FILE`. What the two differ in is what the worker
client is worth: connections, the requests' and answers' heads, and each piece's way to the sink. The library has one
session for all workers, without limits on connections, cookies or decompression.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Protocol

import proxy.workers.ping
import proxy.workers.registry
from proxy.cli import main
from proxy.config.address import WorkerAddress
from proxy.errors import ConnectionBroken, ProxyError, Retry
from proxy.upstream.answer import Answer, Sink
from proxy.upstream.head import Headers, ResponseHead
from proxy.wire.chunks import chunk


class Response(Protocol):
    """What is needed of a library's answer."""

    status: int
    headers: Headers

    async def read(self) -> bytes: ...

    def pieces(self) -> AsyncIterator[bytes]: ...

    async def close(self) -> None: ...


class AiohttpResponse:
    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.status: int = answer.status
        self.headers = [(name.lower(), value) for name, value in answer.raw_headers]

    async def read(self) -> bytes:
        return await self._answer.read()

    def pieces(self) -> AsyncIterator[bytes]:
        return self._answer.content.iter_any()

    async def close(self) -> None:
        self._answer.release()


class AiohttpClient:
    def __init__(self) -> None:
        import aiohttp
        import yarl

        self.errors: tuple[type[Exception], ...] = (aiohttp.ClientError, OSError)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._parsed = yarl.URL
        self._urls: dict[str, yarl.URL] = {}

    async def open(self, method: str, url: str, headers: dict[str, str], body: bytes) -> Response:
        parsed = self._urls.get(url)
        if parsed is None:
            parsed = self._urls[url] = self._parsed(url, encoded=True)
        return AiohttpResponse(
            await self._session.request(method, parsed, data=body or None, headers=headers)
        )


class HttpxResponse:
    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.status: int = answer.status_code
        self.headers = [(name.lower(), value) for name, value in answer.headers.raw]

    async def read(self) -> bytes:
        return await self._answer.aread()

    def pieces(self) -> AsyncIterator[bytes]:
        return self._answer.aiter_raw()

    async def close(self) -> None:
        await self._answer.aclose()


class HttpxClient:
    def __init__(self) -> None:
        import httpx

        self.errors: tuple[type[Exception], ...] = (httpx.HTTPError,)
        unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=4)
        self._client = httpx.AsyncClient(limits=unlimited, timeout=None, trust_env=False)

    async def open(self, method: str, url: str, headers: dict[str, str], body: bytes) -> Response:
        request = self._client.build_request(method, url, content=body or None, headers=headers)
        return HttpxResponse(await self._client.send(request, stream=True))


class Exchange:
    """One request and its answer, with the interface of `proxy.upstream.connection.WorkerConnection`."""

    reused = False

    def __init__(self, client: AiohttpClient | HttpxClient, origin: str) -> None:
        self._client = client
        self._origin = origin
        self._loop = asyncio.get_running_loop()
        self._response: Response | None = None
        self._task: asyncio.Task[Any] | None = None
        self._error: ProxyError | None = None
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.reading_paused = False
        self.last_read = self.paused_since = 0.0

    def send(self, pieces: Iterable[Any]) -> int:
        head, *body = pieces
        lines = head.decode("latin-1").split("\r\n")
        self._method, target, _ = lines[0].split(" ")
        self._url = self._origin + target
        # The library writes these itself.
        self._headers = dict(
            line.split(": ", 1) for line in lines[1:-2] if not line.startswith(("host:", "content-length:"))
        )
        self._body = b"".join(body)
        return 1

    async def answer(self) -> Answer:
        await self.head()
        return await self.rest()

    async def head(self) -> ResponseHead:
        self._response = response = await self._watched(
            self._client.open(self._method, self._url, self._headers, self._body)
        )
        return ResponseHead(response.status, response.headers, True)

    async def rest(self) -> Answer:
        response = self._opened()
        body = await self._watched(response.read())
        await response.close()
        return Answer(ResponseHead(response.status, response.headers, True), body)

    def relay(self, sink: Sink) -> None:
        self.last_read = self._loop.time()
        self._task = self._loop.create_task(self._pump(sink))

    def abort(self, _exchange: int, error: ProxyError) -> None:
        self._error = error
        if self._task is not None:
            self._task.cancel()

    def pause(self) -> None:
        self.reading_paused = True
        self.paused_since = self._loop.time()
        self._may_read.clear()

    def resume(self) -> None:
        self.reading_paused = False
        self._may_read.set()

    def close(self) -> None:
        """The library keeps the connections."""

    def _opened(self) -> Response:
        assert self._response is not None, "head() comes first"
        return self._response

    async def _watched(self, step: Any) -> Any:
        """A step of the library, which `abort` can end."""
        self._task = asyncio.current_task()
        try:
            return await step
        except asyncio.CancelledError:
            if self._error is None or self._task is None:
                raise
            self._task.uncancel()
            raise self._error from None
        except self._client.errors as error:
            raise ConnectionBroken(str(error), retry=Retry.BEFORE_HAND_OFF) from None
        finally:
            self._task = None

    async def _pump(self, sink: Sink) -> None:
        response = self._opened()
        framed = sink.framed
        try:
            async for piece in response.pieces():
                self.last_read = self._loop.time()
                sink.write(chunk(piece) if framed else piece)
                if self.reading_paused:
                    await self._may_read.wait()
        except asyncio.CancelledError:
            sink.broken(self._error or ConnectionBroken("cancelled", retry=Retry.NEVER))
        except self._client.errors as error:
            sink.broken(ConnectionBroken(str(error), retry=Retry.NEVER))
        else:
            sink.end(b"")
        await response.close()


class Attempt:
    """Stands for `proxy.upstream.pool.ConnectAttempt`: the library connects later, by itself."""

    def __init__(self, exchange: Exchange) -> None:
        self.future: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()
        self.future.set_result(exchange)

    def abort(self, _exchange: int, _error: ProxyError) -> None: ...

    def give_up(self) -> None: ...


class LibraryPool:
    """Stands for `proxy.upstream.pool.ConnectionPool`; the real pool is the library's, one for all workers."""

    make_client: Callable[[], AiohttpClient | HttpxClient]
    _client: AiohttpClient | HttpxClient | None = None
    open_connections = idle_connections = 0

    def __init__(self, address: WorkerAddress, **_options: Any) -> None:
        self.address = address
        if LibraryPool._client is None:
            LibraryPool._client = LibraryPool.make_client()
        self._exchange = LibraryPool._client, address.base_url

    def take_idle(self) -> Exchange:
        return Exchange(*self._exchange)

    def connect(self) -> Attempt:
        return Attempt(self.take_idle())

    async def close(self) -> None: ...


if __name__ == "__main__":
    LibraryPool.make_client = {"aiohttp": AiohttpClient, "httpx": HttpxClient}[os.environ["BENCH_CLIENT"]]
    for module in (proxy.workers.ping, proxy.workers.registry):
        vars(module)["ConnectionPool"] = LibraryPool
    sys.exit(main())
