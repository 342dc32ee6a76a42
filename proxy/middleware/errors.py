"""Answers every error of the proxy in OpenAI's shape."""

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.errors import ClientGone, InternalFault, InvalidRequest, ProxyError, error_body, error_headers
from proxy.lifecycle.record import RECORD
from proxy.lifecycle.timing import timing_headers
from proxy.wire.errors import InvalidField

_logger = logging.getLogger("proxy")


class ErrorsMiddleware:
    """The only place where exceptions become answers.

    An error that comes after the answer has begun cannot be answered; the server then closes the connection.

    Args:
        app: the rest of the stack.
        timing: errors of requests that a worker has seen tell where the time went.
    """

    def __init__(self, app: ASGIApp, *, timing: bool = False) -> None:
        self._app = app
        self._timing = timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        try:
            await self._app(scope, receive, send)
        except ProxyError as error:
            await self._answer(error, scope, send)
        except InvalidField as error:
            await self._answer(InvalidRequest(error.message, code=error.code, param=error.param), scope, send)
        except Exception:
            _logger.exception("request %s failed", scope[RECORD].request_id)
            await self._answer(InternalFault("the proxy failed"), scope, send)

    async def _answer(self, error: ProxyError, scope: Scope, send: Send) -> None:
        record = scope[RECORD]
        record.error = error
        record.status = error.status
        if isinstance(error, ClientGone):
            return
        body = error_body(error)
        headers = error_headers(error)
        headers += [(b"content-length", b"%d" % len(body)), (b"x-request-id", record.request_id.encode())]
        if self._timing and (record.context_sent or record.generation_sent or record.queue_ended):
            headers += timing_headers(record)
        start: Message = {"type": "http.response.start", "status": error.status, "headers": headers}
        try:
            await send(start)
            await send({"type": "http.response.body", "body": body, "more_body": False})
        except OSError:
            record.status = ClientGone.status
