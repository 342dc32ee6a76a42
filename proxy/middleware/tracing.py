"""Begins the span of an inference request; it ends when the request's record is settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.lifecycle.record import RECORD

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from proxy.telemetry.tracing import Tracing


class TracingMiddleware:
    """Only there when `otlp_config` names an endpoint.

    Args:
        app: the rest of the stack.
        tracing: makes the spans.
    """

    def __init__(self, app: ASGIApp, *, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        self._tracing.begin(scope, scope[RECORD].received)
        await self._app(scope, receive, send)
