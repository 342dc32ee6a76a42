"""Applies the field tables of `proxy.wire.fields` to a request before an endpoint sees it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import InvalidRequest
from proxy.lifecycle.record import RECORD
from proxy.middleware.body import REQUEST_BODY
from proxy.wire.fields.policy import FieldPolicy


class FieldPolicyMiddleware:
    """Leaves in the body's members only what the workers accept, and notes the names of the others.

    Args:
        app: the endpoint.
        policy: the rules of its route.
        allow_chat_template: a request may bring its own chat template (`allow_request_chat_template`).
    """

    def __init__(self, app: ASGIApp, *, policy: FieldPolicy, allow_chat_template: bool) -> None:
        self._app = app
        self._policy = policy
        self._allow_chat_template = allow_chat_template

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidField, InvalidRequest: the errors middleware answers.
        """
        body = scope[REQUEST_BODY]
        applied = self._policy.apply(body.members)
        if not self._allow_chat_template and "chat_template" in applied.members:
            message = "chat_template cannot be set per request unless allow_request_chat_template is on"
            raise InvalidRequest(message, code="unsupported_field", param="chat_template")
        body.members = applied.members
        scope[RECORD].dropped = applied.dropped
        await self._app(scope, receive, send)
