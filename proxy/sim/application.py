"""The worker's ASGI application: routes, the start-up gate, and the way of a request through its faults."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.types import Receive, Scope, Send

from proxy.sim.answer import expected_text
from proxy.sim.auth import AUTH_HEADER
from proxy.sim.connection import EXTENSION, SimProtocol
from proxy.sim.control import control
from proxy.sim.engine import Aborted, Run
from proxy.sim.faults import Leg
from proxy.sim.inference import RequestError, leg_of, read_inference
from proxy.sim.kv import HandoffError
from proxy.sim.legs import serve
from proxy.sim.messages import COUNT_TOKENS, MESSAGES, serve_messages
from proxy.sim.openapi import openapi_document
from proxy.sim.perf import ASK_HEADER
from proxy.sim.recorded import RecordedRequest
from proxy.sim.reply import AnswerEnded, Reply, send_envelope, send_error
from proxy.sim.responses import PATH as RESPONSES
from proxy.sim.responses import chat_body
from proxy.sim.rl_control import ROUTES as RL_ROUTES
from proxy.sim.rl_control import serve_rl_control
from proxy.sim.tokens import PromptError, tokenize, unpack_ids
from proxy.sim.validation import BodyError

if TYPE_CHECKING:
    from proxy.sim.worker import SimWorker

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
INFERENCE_ROUTES = frozenset({COMPLETIONS, CHAT})
MESSAGES_ROUTES = frozenset({MESSAGES, COUNT_TOKENS})
HEALTH_ROUTES = frozenset({"/health", "/health_generate"})
UNHEALTHY = b"LLM is unavailable. Please check the server logs for more details."
STARTING = {
    "error": {
        "message": "The server is still initializing.",
        "type": "ServiceUnavailableError",
        "code": "starting",
    }
}
STARTING_HEADERS = ((b"retry-after", b"1"), (b"x-trtllm-server-state", b"starting"))
TEXT_TYPE = (b"content-type", b"text/plain; charset=utf-8")
MSGPACK_HEADER = b"x-trtllm-msgpack"

_encode = msgspec.json.encode


class Application:
    """ASGI application of one worker."""

    def __init__(self, worker: "SimWorker") -> None:
        self._worker = worker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        worker = self._worker
        connection: SimProtocol = scope["extensions"][EXTENSION]
        path: str = scope["path"]
        if path.startswith("/sim/"):
            with suppress(Aborted):
                await control(worker, scope, await _read_body(receive), send)
            return
        inference = scope["method"] == "POST" and self._infers(path)
        run = Run(worker.engine, counted=inference)
        reply = Reply(send, connection, run)
        connection.on_close = self._aborter(run)
        try:
            if worker.board.has("starting"):
                await reply.json(_encode(STARTING), 503, STARTING_HEADERS)
            elif worker.settings.rl_control and path in RL_ROUTES:
                await serve_rl_control(worker, scope, await _read_body(receive), reply)
            elif inference:
                await self._infer(path, scope, await _read_body(receive), reply, run)
            else:
                await self._other(path, scope, receive, reply)
        except (Aborted, AnswerEnded):
            # uvicorn wants the answer completed or the connection gone.
            if not connection.cycle.response_complete:
                await connection.closed.wait()
        finally:
            run.finished = True
            connection.on_close = None
            if reply.status:
                worker.statuses[reply.status] += 1

    def _infers(self, path: str) -> bool:
        if path in MESSAGES_ROUTES:
            return self._worker.settings.next_routes
        return path in INFERENCE_ROUTES or (path == RESPONSES and self._worker.profile.name != "old")

    def _aborter(self, run: Run) -> Callable[[], object]:
        delay = self._worker.settings.disconnect_seconds
        if not delay:
            return run.abort
        loop = asyncio.get_running_loop()
        return lambda: loop.call_later(delay, run.abort)

    async def _infer(self, path: str, scope: Scope, raw: bytes, reply: Reply, run: Run) -> None:
        worker = self._worker
        responses = path == RESPONSES
        chat = path == CHAT or responses
        headers: dict[bytes, bytes] = dict(scope["headers"])
        packed = headers.get(MSGPACK_HEADER) == b"1" and worker.profile.accepts_msgpack
        try:
            body = msgspec.msgpack.decode(raw) if packed else msgspec.json.decode(raw)
            problem = None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            body, problem = None, f"JSON decode error: {error}"
        leg = leg_of(body)
        worker.legs[leg] += 1
        self._record(scope, raw, leg)
        if worker.board.faults:
            reply.apply(worker.board.take_answer("inference", leg))
            await reply.intercept()
        if problem is not None:
            await send_error(reply, problem)
            return
        if path in MESSAGES_ROUTES:
            await serve_messages(worker, path, raw, reply, run)
            return
        try:
            if responses:
                body = chat_body(body, hand_offs=worker.settings.next_routes)
            elif worker.profile.strict:
                worker.validator.check(body, chat=chat)
        except BodyError as error:
            await send_error(reply, str(error))
            return
        if body.get("chat_template") and not worker.settings.allow_chat_template:
            await send_envelope(reply, "chat_template cannot be supplied per request on this server")
            return
        try:
            request = read_inference(
                body,
                chat=chat,
                wants_metrics=headers.get(ASK_HEADER) == b"1",
                prompt_ids=worker.prompt_ids,
                tells_ids=worker.profile.tells_ids,
            )
            request.responses = responses
            await serve(worker, request, reply, run, headers.get(AUTH_HEADER))
        except (RequestError, PromptError, HandoffError) as error:
            await send_envelope(reply, str(error))

    def _record(self, scope: Scope, raw: bytes, leg: Leg) -> None:
        worker = self._worker
        if not worker.settings.record:
            return
        worker.requests.append(
            RecordedRequest(
                method=scope["method"],
                path=scope["path"],
                query=scope["query_string"].decode("latin-1"),
                headers=tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]),
                body=raw if len(raw) <= worker.settings.record_bytes else None,
                size=len(raw),
                leg=leg,
            )
        )

    async def _other(self, path: str, scope: Scope, receive: Receive, reply: Reply) -> None:
        worker = self._worker
        if worker.board.faults:
            route = "health" if path in HEALTH_ROUTES else "other"
            reply.apply(worker.board.take_answer(route, None))
            await reply.intercept()
        methods = ROUTES.get(path)
        if methods is None:
            await reply.json(b'{"detail":"Not Found"}', 404)
            return
        handler = methods.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if handler is None:
            allow = [(b"allow", ", ".join(methods).encode())]
            await reply.json(b'{"detail":"Method Not Allowed"}', 405, allow)
            return
        await handler(self, await _read_body(receive), reply)

    async def health(self, _: bytes, reply: Reply) -> None:
        """Alive; the fault ``status`` with route ``health`` says otherwise."""
        await reply.full(200, b"")

    async def health_generate(self, _: bytes, reply: Reply) -> None:
        """A generation of one token."""
        expected_text({"prompt": "hi", "max_tokens": 1})
        await reply.full(200, b"Generation health check OK", TEXT_TYPE)

    async def version(self, _: bytes, reply: Reply) -> None:
        """The version that the profile stands for."""
        await reply.json(_encode({"version": self._worker.profile.reported_version}))

    async def models(self, _: bytes, reply: Reply) -> None:
        """The one served model."""
        model = {
            "id": self._worker.settings.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "tensorrt_llm",
        }
        await reply.json(_encode({"object": "list", "data": [model]}))

    async def server_info(self, _: bytes, reply: Reply) -> None:
        """How generation workers reach this one, and the block hashing."""
        worker = self._worker
        info: dict[str, Any] = {"disaggregated_params": {}}
        if worker.settings.transceiver in ("full", "python"):
            endpoint = [worker.context_address.as_endpoint()]
            info["disaggregated_params"] = {"ctx_dp_rank": 0, "ctx_info_endpoint": endpoint}
        if worker.profile.name != "old":
            info["max_batch_size"] = worker.settings.speed.max_batch or 256
            info["kv_cache_hash_algo"] = worker.settings.hash_algorithm
            info["tokens_per_block"] = worker.settings.tokens_per_block
        await reply.json(_encode(info))

    async def openapi(self, _: bytes, reply: Reply) -> None:
        """The accepted fields."""
        if not (self._worker.settings.openapi and self._worker.profile.strict):
            await reply.json(b'{"detail":"Not Found"}', 404)
            return
        next_routes = self._worker.settings.next_routes
        await reply.json(openapi_document(self._worker.profile, next_routes=next_routes))

    async def read_clock(self, _: bytes, reply: Reply) -> None:
        """Steady clock at arrival and at departure, seconds."""
        received = time.monotonic()
        if self._worker.settings.clock_seconds:
            await asyncio.sleep(self._worker.settings.clock_seconds)
        await reply.json(_encode({"receive_ts": received, "transmit_ts": time.monotonic()}))

    async def set_clock(self, raw: bytes, reply: Reply) -> None:
        """Remember the offset that perf timestamps shall have."""
        try:
            self._worker.clock_offset = float(msgspec.json.decode(raw)["offset"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            await send_error(reply, f"offset: {error!r}")
            return
        await reply.full(200, b"")

    async def iteration_stats(self, _: bytes, reply: Reply) -> None:
        """The engine's state as one iteration's statistics."""
        engine, kv = self._worker.engine, self._worker.kv.counts(self._worker.name)
        stats = {
            "iter": self._worker.legs.total(),
            "numActiveRequests": engine.running,
            "numQueuedRequests": engine.waiting,
            "kvCacheStats": {
                "usedNumBlocks": kv.held,
                "tokensPerBlock": self._worker.settings.tokens_per_block,
            },
        }
        await reply.json(_encode([stats]))

    async def perf_metrics(self, _: bytes, reply: Reply) -> None:
        """Records since the last call."""
        records = list(self._worker.metrics)
        self._worker.metrics.clear()
        await reply.json(_encode(records))

    async def kv_cache_events(self, _: bytes, reply: Reply) -> None:
        """KV events since the last call."""
        blocks = self._worker.blocks
        await reply.json(_encode([] if blocks is None else blocks.drain()))

    async def tokenize(self, raw: bytes, reply: Reply) -> None:
        """The ids of a text."""
        try:
            ids = unpack_ids(tokenize(msgspec.json.decode(raw)["prompt"]))
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            await send_error(reply, f"prompt: {error!r}")
            return
        await reply.json(_encode({"count": len(ids), "tokens": ids}))


Handler = Callable[[Application, bytes, Reply], Awaitable[None]]

ROUTES: dict[str, dict[str, Handler | None]] = {
    COMPLETIONS: {"POST": None},
    CHAT: {"POST": None},
    "/health": {"GET": Application.health},
    "/health_generate": {"GET": Application.health_generate},
    "/version": {"GET": Application.version},
    "/v1/models": {"GET": Application.models},
    "/server_info": {"GET": Application.server_info},
    "/openapi.json": {"GET": Application.openapi},
    "/steady_clock_offset": {"GET": Application.read_clock, "POST": Application.set_clock},
    "/metrics": {"GET": Application.iteration_stats},
    "/perf_metrics": {"GET": Application.perf_metrics},
    "/kv_cache_events": {"POST": Application.kv_cache_events},
    "/_internal/tokenize": {"POST": Application.tokenize},
}


async def _read_body(receive: Receive) -> bytes:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Aborted
    first: bytes = message["body"]
    if not message["more_body"]:
        return first
    parts = [first]
    while message["more_body"]:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Aborted
        parts.append(message["body"])
    return b"".join(parts)
