"""Opens each request's record, gives it an id, and settles it when the request is over."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.errors import ClientUnreachable
from proxy.lifecycle.headers import acceptable_request_id
from proxy.lifecycle.record import RECORD, RequestRecord

Settle = Callable[[RequestRecord, Scope], None]


class RecordMiddleware:
    """Outermost: whatever happens inside, `settle` is called once per request, with the finished record.

    Args:
        app: the rest of the stack.
        settle: told each finished request (access log, metrics).
    """

    def __init__(self, app: ASGIApp, *, settle: tuple[Settle, ...]) -> None:
        self._app = app
        self._settle = settle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(_request_id(scope), perf_counter())
        scope[RECORD] = record
        try:
            await self._app(scope, receive, _StatusWatch(record, send))
        finally:
            record.ended = perf_counter()
            for settle in self._settle:
                settle(record, scope)


class _StatusWatch:
    """Notes the status of answers that go through `send` and adds the request's id; others do both themselves."""

    __slots__ = ("_record", "_send")

    def __init__(self, record: RequestRecord, send: Send) -> None:
        self._record = record
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._record.status = message["status"]
            headers = [*message.get("headers", ())]
            if not any(name == b"x-request-id" for name, _ in headers):
                headers.append((b"x-request-id", self._record.request_id.encode()))
            message = {**message, "headers": headers}
        try:
            await self._send(message)
        except OSError:
            raise ClientUnreachable("the client left") from None


def _request_id(scope: Scope) -> str:
    """The client's `x-request-id` if it is fit for headers and logs, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and acceptable_request_id(value):
            return str(value, "ascii")
    return os.urandom(16).hex()
