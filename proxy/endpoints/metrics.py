"""GET /metrics and /prometheus/metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.types import Receive, Scope, Send

from proxy.endpoints.answer import send_bytes


class MetricsEndpoint:
    """Renders a registry in the format that the scraper accepts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        accept = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"), "")
        encode, content_type = choose_encoder(accept)
        await send_bytes(send, 200, encode(self._registry), content_type.encode())
