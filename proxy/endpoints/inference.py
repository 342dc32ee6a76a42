"""POST /v1/chat/completions, /v1/completions and /v1/responses: two legs, context first."""

from __future__ import annotations

from typing import Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from proxy.endpoints.entrance import Entrance
from proxy.lifecycle.context_first import serve_context_first
from proxy.lifecycle.keep_alive import kept_alive
from proxy.lifecycle.record import RECORD
from proxy.lifecycle.service import Service
from proxy.lifecycle.wanted_ids import wanted_ids
from proxy.middleware.body import REQUEST_BODY
from proxy.wire.members import Members
from proxy.wire.request import InferenceRequest


class ReadRequest(Protocol):
    """See `proxy.wire.request.read_request`."""

    def __call__(self, members: Members, *, conversation: str) -> InferenceRequest:
        """Raises `InvalidField`."""
        ...


class InferenceEndpoint:
    """A route that workers serve under the same path.

    Args:
        service: what all requests share.
        path: of the route, here and on the workers.
        read: checks the members of a body, given the conversation.
    """

    def __init__(self, service: Service, *, path: str, read: ReadRequest) -> None:
        self._service = service
        self._entrance = Entrance(service, path)
        self._read = read
        self._keep_alive = service.settings.proxy.sse_keepalive_seconds
        self._aliases = {
            alias: msgspec.Raw(msgspec.json.encode(model))
            for alias, model in service.settings.proxy.model_aliases.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidField, ProxyError: nothing has been sent; the errors middleware answers.
        """
        record, body = scope[RECORD], scope[REQUEST_BODY]
        request = self._read(body.members, conversation=body.conversation)
        if request.model in self._aliases:
            request.members["model"] = self._aliases[request.model]
        record.model = request.model
        record.stream = request.stream
        record.conversation = body.conversation
        wanted = wanted_ids(body.asked, request, self._service, record) if body.asked else None
        priority, body.priority = body.priority, None  # a slice of the body, which it would keep alive
        passage = self._entrance.passage(
            scope, request, body.client, priority=priority, placement=body.placement
        )
        passage.wanted_ids = wanted
        running = serve_context_first(passage)
        if self._keep_alive and request.stream:
            running = kept_alive(
                running, body.client, record, seconds=self._keep_alive, headers=passage.response_headers
            )
        await running
