"""GET /metrics and /prometheus/metrics."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from proxy.endpoints.answer import send_bytes
from proxy.telemetry.exposition import Exposition


class MetricsEndpoint:
    """Tells the metrics in the format that the scraper accepts."""

    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        accept = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"), "")
        text, content_type = await self._exposition.render(accept)
        await send_bytes(send, 200, text, content_type.encode())
