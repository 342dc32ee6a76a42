"""POST /v1/responses: OpenAI's Responses API in two legs, where the workers hand over on it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.endpoints.single_leg import NEVER_FROM_CLIENTS
from proxy.lifecycle.record import RECORD
from proxy.lifecycle.service import Service
from proxy.middleware.body import REQUEST_BODY
from proxy.wire.fields.conversation import conversation_id
from proxy.wire.members import is_null
from proxy.workers.routes import require_route

RESPONSES = "/v1/responses"


class ResponsesPolicy:
    """In the place of the field policy: workers take any member here, so only what must not come from clients is left
    out, and nulls, which mean that a member is not there.

    Args:
        app: the inference endpoint.
        service: its workers must have the route.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            NotReady, NotFound, NotSupported: the workers cannot.
        """
        require_route(self._service.registry.workers, RESPONSES, hand_offs=True)
        body, record = scope[REQUEST_BODY], scope[RECORD]
        sent = body.members
        body.conversation = conversation_id(sent, scope["headers"])
        body.members = {
            name: value
            for name, value in sent.items()
            if name not in NEVER_FROM_CLIENTS and not is_null(value)
        }
        record.dropped = tuple(name for name in sent if name in NEVER_FROM_CLIENTS)
        del sent  # this frame lives as long as the answer; see `Passage.forget_prompt`
        await self._app(scope, receive, send)
