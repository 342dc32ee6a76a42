"""A model of today's orchestrator, written for this bench from its protocol; not its code.

What it does for each request: pydantic validation of every message, the whole body dumped and encoded for each
leg, the context answer read by the standard json module and validated, its ids dumped again into the generation
leg, the JSON answer validated and dumped, and for each piece of a stream three observations of histograms in
multiprocess mode and one `sleep(0)`. aiohttp with unlimited connections that stay open for one second of
idleness and 180 s in total; the collector off; uvloop and httptools as uvicorn picks them.
"""

import asyncio
import gc
import itertools
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from prometheus_client import Counter, Histogram

from bench.rivals.orchestrator_models import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    DisaggregatedParams,
)

CONTEXT, GENERATION = os.environ["BENCH_CONTEXT"], os.environ["BENCH_GENERATION"]
AS_BASE64 = os.environ["BENCH_BASE64"] == "1"
_SHORT = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
_LONG = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920)
_ids = itertools.count(1 << 60)


class LegMetrics:
    """The metrics of one role."""

    def __init__(self, role: str) -> None:
        self.total = Counter(f"{role}_total_requests", role)
        self.completed = Counter(f"{role}_completed_requests", role)
        self.first = Histogram(f"{role}_first_token_latency_seconds", role, buckets=_SHORT)
        self.complete = Histogram(f"{role}_complete_latency_seconds", role, buckets=_LONG)
        self.per_token = Histogram(f"{role}_per_token_latency_seconds", role, buckets=_SHORT)


METRICS = {"ctx": LegMetrics("ctx"), "gen": LegMetrics("gen")}
REQUESTS = Counter("total_requests", "requests")
RESPONSES = Counter("total_responses", "responses")
QUEUE = Histogram("queue_latency_seconds", "queue", buckets=_SHORT)
session: aiohttp.ClientSession


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    global session
    gc.disable()
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=1),
        timeout=aiohttp.ClientTimeout(total=180),
    )
    yield
    await session.close()


app = FastAPI(lifespan=lifespan)


def encode(request: ChatCompletionRequest) -> bytes:
    fields = request.model_dump(mode="json", exclude_unset=True)
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


async def post(server: str, role: str, request: ChatCompletionRequest) -> aiohttp.ClientResponse:
    METRICS[role].total.inc()
    return await session.post(
        f"http://{server}/v1/chat/completions",
        data=encode(request),
        headers={"Content-Type": "application/json"},
    )


async def post_json(server: str, role: str, request: ChatCompletionRequest) -> ChatCompletionResponse:
    started = time.monotonic()
    async with await post(server, role, request) as answer:
        answer.raise_for_status()
        fields: dict[str, Any] = await answer.json()
    METRICS[role].complete.observe(time.monotonic() - started)
    METRICS[role].completed.inc()
    return ChatCompletionResponse(**fields)


async def pieces(request: ChatCompletionRequest) -> AsyncIterator[bytes]:
    started = last = time.monotonic()
    metrics = METRICS["gen"]
    is_first = True
    async with await post(GENERATION, "gen", request) as answer:
        answer.raise_for_status()
        async for piece in answer.content.iter_any():
            now = time.monotonic()
            if is_first:
                metrics.first.observe(now - started)
                is_first = False
            else:
                metrics.per_token.observe(now - last)
            last = now
            yield piece
            await asyncio.sleep(0)
    metrics.complete.observe(time.monotonic() - started)
    metrics.completed.inc()


def context_request(request: ChatCompletionRequest) -> ChatCompletionRequest:
    params = DisaggregatedParams(request_type="context_only", disagg_request_id=next(_ids), schedule_style=0)
    if AS_BASE64:
        params.return_prompt_token_ids_b64 = True
    return request.model_copy(
        update={"disaggregated_params": params, "stream": False, "stream_options": None}
    )


def generation_request(
    request: ChatCompletionRequest, answer: ChatCompletionResponse
) -> ChatCompletionRequest:
    params = answer.choices[0].disaggregated_params
    if params is None or params.disagg_request_id is None:
        raise ValueError("context answer without disaggregated_params")
    params.request_type = "generation_only"
    params.ctx_usage = answer.usage
    request.disaggregated_params = params
    if answer.prompt_token_ids_b64 is not None:
        request.prompt_token_ids_b64 = answer.prompt_token_ids_b64
    else:
        request.prompt_token_ids = answer.prompt_token_ids
    return request


@app.post("/v1/chat/completions")
async def chat(request: ChatCompletionRequest, raw: Request) -> Response:
    arrived = time.monotonic()
    REQUESTS.inc()
    QUEUE.observe(time.monotonic() - arrived)
    answer = await post_json(CONTEXT, "ctx", context_request(request))
    generation = generation_request(request, answer)
    RESPONSES.inc()
    if request.stream:
        return StreamingResponse(pieces(generation), media_type="text/event-stream")
    return JSONResponse((await post_json(GENERATION, "gen", generation)).model_dump())


@app.get("/health")
async def health() -> Response:
    return Response()


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(os.environ["BENCH_PORT"]),
        log_level="error",
        backlog=4096,
        timeout_keep_alive=75,
    )
