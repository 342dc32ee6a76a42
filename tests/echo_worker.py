"""A worker with routes of which the proxy knows nothing: tells what it got, or streams."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvicorn

PIECES = [b"first ", b"second ", b"third"]


class EchoWorker:
    """Requests are kept in ``requests``; ``release`` lets streams go on behind their first piece."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.release = asyncio.Event()
        self.address = ""

    def of(self, path: str) -> list[dict[str, Any]]:
        """What came for a path."""
        return [request for request in self.requests if request["path"] == path]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        path = scope["path"]
        request = {
            "method": scope["method"],
            "path": path,
            "query": scope["query_string"].decode(),
            "headers": {name.decode(): value.decode() for name, value in scope["headers"]},
            "body": body.decode("latin-1"),
        }
        self.requests.append(request)
        if path in ("/v1/stream", "/v1/cut"):
            await self._stream(send, cut=path == "/v1/cut")
            return
        status = int(request["query"] or 200) if path == "/v1/status" else 200
        answer = msgspec.json.encode(request)
        length = (b"content-length", b"%d" % len(answer))
        headers = [(b"content-type", b"application/json"), length, (b"set-cookie", b"a=b")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _stream(self, send: Any, *, cut: bool) -> None:
        headers = [(b"content-type", b"application/x-ndjson")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": PIECES[0], "more_body": True})
        await self.release.wait()
        if cut:
            raise RuntimeError("the stream breaks")
        for number, piece in enumerate(PIECES[1:], 2):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(PIECES)})


@asynccontextmanager
async def echo_worker() -> AsyncIterator[EchoWorker]:
    """A worker that serves until the end of the block."""
    worker = EchoWorker()
    config = uvicorn.Config(worker, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        worker.address = f"127.0.0.1:{listening.getsockname()[1]}"
        serving = asyncio.create_task(server._serve([listening]))
        try:
            yield worker
        finally:
            server.should_exit = server.force_exit = True
            await serving
