"""A small, exact client of the two legs: what a proxy does, without a proxy."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from proxy.sim import SimWorker

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"

_ids = itertools.count(1 << 41)


def new_id() -> int:
    return next(_ids)


def completion(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "prompt": "Once upon a time", "max_tokens": 6, **fields}


def chat(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "be terse"}, {"role": "user", "content": "Name öne colour."}]
    return {"model": "m", "messages": messages, "max_tokens": 6, **fields}


def path_of(body: dict[str, Any]) -> str:
    return CHAT if "messages" in body else COMPLETIONS


def context_body(body: dict[str, Any], request_id: int | None = None, **params: Any) -> dict[str, Any]:
    kept = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    asked = {"request_type": "context_only", "disagg_request_id": request_id or new_id(), **params}
    return {**kept, "stream": False, "stream_options": None, "disaggregated_params": asked}


def generation_body(body: dict[str, Any], answer: dict[str, Any], **params: Any) -> dict[str, Any]:
    handoff = answer["choices"][0]["disaggregated_params"]
    asked = {**handoff, "request_type": "generation_only", **params}
    if "ctx_usage" in handoff:
        asked.setdefault("ctx_usage", None)
        asked["ctx_usage"] = params.get("ctx_usage", answer["usage"])
    made = {**body, "disaggregated_params": asked}
    if "messages" not in body:
        made["prompt"] = answer["prompt_token_ids"]
    elif answer.get("prompt_token_ids_b64"):
        made["prompt_token_ids_b64"] = answer["prompt_token_ids_b64"]
    else:
        made["prompt_token_ids"] = answer["prompt_token_ids"]
    return made


class Client:
    """An HTTP client with the legs of a request."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def post(
        self, worker: SimWorker, body: Any, path: str | None = None, **options: Any
    ) -> httpx.Response:
        return await self.http.post(worker.url + (path or path_of(body)), json=body, **options)

    async def get(self, worker: SimWorker, path: str, **options: Any) -> httpx.Response:
        return await self.http.get(worker.url + path, **options)

    async def context(self, worker: SimWorker, body: dict[str, Any], **params: Any) -> dict[str, Any]:
        response = await self.post(worker, context_body(body, **params))
        assert response.status_code == 200, response.text
        return response.json()

    async def both(
        self, context: SimWorker, generation: SimWorker, body: dict[str, Any], **params: Any
    ) -> httpx.Response:
        answer = await self.context(context, body, **params)
        response = await self.post(generation, generation_body(body, answer))
        assert response.status_code == 200, response.text
        return response


def events(text: str) -> list[Any]:
    """The data of an event stream, parsed; [DONE] as text."""
    frames = [frame for frame in text.replace(" \n\n", "\n\n").split("\n\n") if frame]
    data = [frame.removeprefix("data: ") for frame in frames]
    return [item if item == "[DONE]" else json.loads(item) for item in data]


def raw_request(body: dict[str, Any], path: str | None = None, headers: str = "") -> bytes:
    text = json.dumps(body).encode()
    head = (
        f"POST {path or path_of(body)} HTTP/1.1\r\nhost: sim\r\ncontent-length: {len(text)}\r\n{headers}\r\n"
    )
    return head.encode() + text


@asynccontextmanager
async def raw_connection(
    worker: SimWorker,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = worker.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def eventually(check: Any, seconds: float = 2.0) -> None:
    """Wait until ``check()`` holds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not check():
        assert asyncio.get_running_loop().time() < deadline, "did not happen in time"
        await asyncio.sleep(0.005)
