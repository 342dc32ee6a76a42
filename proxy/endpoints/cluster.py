"""GET /cluster_info and /version."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from proxy import __version__
from proxy.endpoints.answer import send_json
from proxy.lifecycle.service import Service
from proxy.workers.worker import Role


class ClusterInfoEndpoint:
    """What `trtllm-serve disaggregated` tells about its servers, in the same shape."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        registry = self._service.registry
        info = {
            "is_ready": self._service.ready,
            "server_lists": {
                "context": [worker.address.text for worker in registry.of_role(Role.CONTEXT)],
                "generation": [worker.address.text for worker in registry.of_role(Role.GENERATION)],
            },
        }
        await send_json(send, 200, info)


class VersionEndpoint:
    """The workers' common version under upstream's key, and the proxy's own."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        await send_json(send, 200, {"version": self._service.registry.version, "proxy": __version__})
