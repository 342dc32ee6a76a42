"""POST /tokenize and /detokenize without a tokenizer of the proxy's own: what workers can do, they do.

TensorRT-LLM's `/_internal/tokenize` takes a text and nothing else.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

import httpx
import msgspec
from starlette.types import Receive, Scope, Send

from proxy.endpoints.answer import send_json
from proxy.errors import InvalidRequest, NotReady, NotSupported
from proxy.lifecycle.record import RECORD
from proxy.lifecycle.service import Service
from proxy.middleware.body import read_body
from proxy.wire.members import NULL, is_null
from proxy.workers.probe import control_client
from proxy.workers.worker import Role, Worker

_PATH = "/_internal/tokenize"


class _Request(msgspec.Struct):
    prompt: str | None = None
    messages: msgspec.Raw = msgspec.Raw(NULL)
    model: str | None = None
    add_special_tokens: bool = True
    return_token_strs: bool | None = None


class _Tokens(msgspec.Struct):
    tokens: list[int]


class WorkersTokenizeEndpoint:
    """The text form, by the first context worker that offers it."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            NotSupported: a form that needs `proxy.tokenizer`, or no worker offers it.
            InvalidRequest, NotReady, BodyTooLarge, ClientGone.
        """
        body = await read_body(receive, self._service.settings.proxy.max_body_bytes)
        scope[RECORD].body_size = len(body)
        try:
            request = msgspec.json.decode(body, type=_Request)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidRequest(f"the body is not of the expected form: {error}") from None
        if not is_null(request.messages):
            _refuse("to tokenise messages")
        if not request.add_special_tokens:
            _refuse("to leave out special tokens")
        if request.return_token_strs:
            _refuse("to return token_strs")
        if request.prompt is None:
            raise InvalidRequest("prompt or messages is required", code="missing_required_parameter")
        workers = [
            worker
            for worker in self._service.registry.workers
            if worker.ready and worker.role is Role.CONTEXT
        ]
        if not workers:
            raise NotReady("no context worker is ready")
        sent = {"prompt": request.prompt} | ({"model": request.model} if request.model else {})
        for worker in workers:
            ids = await self._ask(worker, sent)
            if ids is not None:
                answer = {"count": len(ids), "max_model_len": None, "tokens": ids, "token_strs": None}
                await send_json(send, 200, answer)
                return
        _refuse(f"to tokenise: the workers do not offer {_PATH}")

    async def _ask(self, worker: Worker, body: dict[str, str]) -> list[int] | None:
        """The ids of a text; None when the worker does not tell."""
        try:
            async with asyncio.timeout(self._service.settings.proxy.timeout_context or None):
                async with control_client(worker.address, self._service.registry.access) as client:
                    answer = await client.post(_PATH, json=body)
            return (
                msgspec.json.decode(answer.content, type=_Tokens).tokens
                if answer.status_code == 200
                else None
            )
        except (httpx.HTTPError, msgspec.MsgspecError, RecursionError, TimeoutError):
            return None


async def detokenize_nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """Workers have nothing like it.

    Raises:
        NotSupported: always.
    """
    _refuse("to detokenise")


def _refuse(what: str) -> NoReturn:
    raise NotSupported(f"proxy.tokenizer must be configured {what}", code="no_tokenizer")
