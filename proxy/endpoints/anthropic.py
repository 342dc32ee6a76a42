"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API, where the workers have it.

Workers tell of no way to hand over on these routes, so that a request takes one leg: messages on a generation worker,
which prefills by itself, and counts on a context worker.
"""

from __future__ import annotations

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import ClientGone, ProxyError, error_headers
from proxy.lifecycle.record import RECORD
from proxy.lifecycle.service import Service
from proxy.workers.routes import require_route
from proxy.workers.worker import Role

MESSAGES, COUNT_TOKENS = "/v1/messages", "/v1/messages/count_tokens"

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class AnthropicEndpoint:
    """One of the routes; errors of the proxy's own have Anthropic's shape.

    Args:
        app: serves the request in one leg.
        service: its workers must have the route.
        path, role: of the route.
    """

    def __init__(self, app: ASGIApp, service: Service, *, path: str, role: Role) -> None:
        self._app = app
        self._registry = service.registry
        self._path = path
        self._role = role

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            ClientGone: nobody is there to be answered.
        """
        try:
            require_route(self._registry.of_role(self._role), self._path)
            await self._app(scope, receive, send)
        except ClientGone:
            raise
        except ProxyError as error:
            scope[RECORD].error = error
            body = anthropic_error(error)
            headers = [*error_headers(error), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": error.status, "headers": headers})
            await send({"type": "http.response.body", "body": body, "more_body": False})


def anthropic_error(error: ProxyError) -> bytes:
    """`{"type": "error", "error": {"type", "message"}}`."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": error.message}})


def anthropic_event(error: ProxyError) -> bytes:
    """The event that ends a stream which breaks off."""
    return b"event: error\ndata: %b\n\n" % anthropic_error(error)
