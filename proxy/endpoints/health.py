"""GET /health (as `trtllm-serve disaggregated` answers it), /health/live, /health/ready."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from proxy.endpoints.answer import send_bytes
from proxy.lifecycle.service import Service


class ReadyEndpoint:
    """200 when a request could be served, else 503; no body."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        await send_bytes(send, 200 if self._service.ready else 503, b"")


async def live(scope: Scope, receive: Receive, send: Send) -> None:
    """200 as long as the event loop turns."""
    await send_bytes(send, 200, b"")
