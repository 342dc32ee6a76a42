"""POST /v1/chat/completions, /v1/completions and /v1/responses: two legs, context first."""

from __future__ import annotations

from typing import Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from proxy.lifecycle.context_first import serve_context_first
from proxy.lifecycle.deadline import read_deadline
from proxy.lifecycle.headers import Headers, to_workers
from proxy.lifecycle.keep_alive import kept_alive
from proxy.lifecycle.passage import Passage
from proxy.lifecycle.priority import DEFAULT_PRIORITY, read_priority
from proxy.lifecycle.record import RECORD
from proxy.lifecycle.service import Service
from proxy.lifecycle.wanted_ids import wanted_ids
from proxy.middleware.body import REQUEST_BODY, RequestBody
from proxy.middleware.cors import RESPONSE_HEADERS
from proxy.wire.fields.policy import header_value
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
        self._path = path.encode()
        self._read = read
        self._forwarded = frozenset(name.encode() for name in service.settings.proxy.forward_headers)
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
        query: bytes = scope["query_string"]
        response_headers: Headers = [(b"x-request-id", record.request_id.encode())]
        if RESPONSE_HEADERS in scope:
            response_headers += scope[RESPONSE_HEADERS]
        if record.dropped:
            response_headers.append((b"x-disagg-proxy-dropped", header_value(record.dropped)))
        passage = Passage(
            self._service,
            request,
            body.client,
            record,
            target=self._path + b"?" + query if query else self._path,
            headers=to_workers(
                scope["headers"],
                record.request_id,
                forwarded=self._forwarded,
                own=self._service.registry.access.key_line,
            ),
            response_headers=response_headers,
            total=read_deadline(scope["headers"], self._service.settings.proxy.timeout_total),
            priority=self._priority(scope["headers"], body),
            placement=body.placement,
        )
        passage.wanted_ids = wanted
        running = serve_context_first(passage)
        if self._keep_alive and request.stream:
            running = kept_alive(
                running, body.client, record, seconds=self._keep_alive, headers=response_headers
            )
        await running

    def _priority(self, headers: Headers, body: RequestBody) -> float:
        given, body.priority = body.priority, None  # a slice of the body, which it would keep alive
        if self._service.settings.proxy.queue_order == "fifo":
            return DEFAULT_PRIORITY
        return read_priority(headers, given)
