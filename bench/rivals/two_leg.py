"""The same method as this project's proxy in one file, over a library's client instead of its own.

Raw ASGI on uvicorn (uvloop, httptools); the body is split into `msgspec.Raw` members and never read further,
the ids travel as a raw slice, the answer's bytes are relayed as they come.
"""

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec
import uvicorn

CONTEXT = f"http://{os.environ['BENCH_CONTEXT']}"
GENERATION = f"http://{os.environ['BENCH_GENERATION']}"
CLIENT = os.environ["BENCH_CLIENT"]
_HEADERS = {"content-type": "application/json"}
_RELAYED = ("content-type", "content-length")
_ids = itertools.count(1 << 60)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
Send = Callable[[dict[str, Any]], Awaitable[None]]


class ContextChoice(msgspec.Struct):
    disaggregated_params: dict[str, msgspec.Raw]
    finish_reason: str | None = None


class ContextAnswer(msgspec.Struct):
    choices: list[ContextChoice]
    usage: msgspec.Raw
    prompt_token_ids: msgspec.Raw = msgspec.Raw(b"null")
    prompt_token_ids_b64: msgspec.Raw = msgspec.Raw(b"null")


_context_answer = msgspec.json.Decoder(ContextAnswer)


def joined(members: dict[str, Any]) -> bytes:
    """A JSON object of raw values."""
    pieces: list[Any] = [b"{"]
    for key, value in members.items():
        pieces += (b'"', key.encode(), b'":', value, b",")
    pieces[-1] = b"}"
    return b"".join(pieces)


class AiohttpClient:
    """Worker client over aiohttp."""

    async def start(self) -> None:
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_read=180),
            auto_decompress=False,
        )

    async def stop(self) -> None:
        await self._session.close()

    async def read(self, url: str, body: bytes) -> bytes:
        async with self._session.post(url, data=body, headers=_HEADERS) as answer:
            answer.raise_for_status()
            return await answer.read()

    @contextlib.asynccontextmanager
    async def stream(
        self, url: str, body: bytes
    ) -> AsyncIterator[tuple[int, Mapping[str, str], AsyncIterator[bytes]]]:
        async with self._session.post(url, data=body, headers=_HEADERS) as answer:
            yield answer.status, answer.headers, answer.content.iter_any()


class HttpxClient:
    """Worker client over httpx."""

    async def start(self) -> None:
        import httpx

        unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(limits=unlimited, timeout=180, trust_env=False)

    async def stop(self) -> None:
        await self._client.aclose()

    async def read(self, url: str, body: bytes) -> bytes:
        answer = await self._client.post(url, content=body, headers=_HEADERS)
        answer.raise_for_status()
        return answer.content

    @contextlib.asynccontextmanager
    async def stream(
        self, url: str, body: bytes
    ) -> AsyncIterator[tuple[int, Mapping[str, str], AsyncIterator[bytes]]]:
        async with self._client.stream("POST", url, content=body, headers=_HEADERS) as answer:
            yield answer.status_code, answer.headers, answer.aiter_raw()


client = AiohttpClient() if CLIENT == "aiohttp" else HttpxClient()


async def receive_body(receive: Callable[[], Awaitable[dict[str, Any]]]) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def context_body(members: dict[str, Any]) -> bytes:
    params = (
        b'{"request_type":"context_only","disagg_request_id":%d,"schedule_style":0,'
        b'"return_prompt_token_ids_b64":true}' % next(_ids)
    )
    leg = {key: value for key, value in members.items() if key not in ("stream", "stream_options")}
    leg["stream"] = b"false"
    leg["disaggregated_params"] = params
    return joined(leg)


def generation_body(members: dict[str, Any], answer: ContextAnswer) -> bytes:
    params = answer.choices[0].disaggregated_params
    leg = dict(members)
    leg["disaggregated_params"] = joined(
        {**params, "request_type": b'"generation_only"', "ctx_usage": answer.usage}
    )
    for name in ("prompt_token_ids_b64", "prompt_token_ids"):
        # A Raw never equals bytes, so it is looked at as a memory view.
        if memoryview(getattr(answer, name))[:1] != b"n":
            leg[name] = getattr(answer, name)
            break
    return joined(leg)


async def two_legs(path: str, body: bytes, send: Send) -> None:
    members = _members.decode(body)
    members.pop("disaggregated_params", None)
    raw_answer = await client.read(CONTEXT + path, context_body(members))
    leg = generation_body(members, _context_answer.decode(raw_answer))
    # A stream may stay open for minutes; the prompt need not stay in memory with it.
    del body, members, raw_answer
    async with client.stream(GENERATION + path, leg) as (status, given, pieces):
        headers = [(name.encode(), given[name].encode()) for name in _RELAYED if name in given]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def application(
    scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Send
) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await client.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await client.stop()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["method"] != "POST":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        return
    await two_legs(scope["path"], await receive_body(receive), send)


if __name__ == "__main__":
    uvicorn.run(
        application,
        host="127.0.0.1",
        port=int(os.environ["BENCH_PORT"]),
        http="httptools",
        loop="uvloop",
        log_level="error",
        access_log=False,
        backlog=4096,
        timeout_keep_alive=75,
    )
