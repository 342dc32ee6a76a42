"""Notes what the placement policies need to know of a request, before the field policy drops some of it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.lifecycle.record import RECORD
from proxy.middleware.body import REQUEST_BODY
from proxy.placement.affinity import read_placement
from proxy.placement.policy import Needs


class AffinityMiddleware:
    """Between the body and the field policy; only there if a policy needs anything.

    Args:
        app: the rest of the stack.
        needs: of the policies of both roles.
    """

    def __init__(self, app: ASGIApp, *, needs: Needs) -> None:
        self._app = app
        self._needs = needs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        body = scope[REQUEST_BODY]
        body.placement = read_placement(body.members, scope["headers"], self._needs, scope[RECORD].body_size)
        await self._app(scope, receive, send)
