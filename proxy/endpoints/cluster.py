"""GET /cluster_info and /version."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from proxy import __version__
from proxy.endpoints.answer import send_json
from proxy.lifecycle.service import Service
from proxy.workers.discovery.registration import ROLE_NUMBERS, WORKER_ID_LABEL
from proxy.workers.worker import Role, Worker


class ClusterInfoEndpoint:
    """What `trtllm-serve disaggregated` tells about its servers, in the same shape."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        registry = self._service.registry
        info: dict[str, Any] = {
            "is_ready": self._service.ready,
            "server_lists": {
                "context": [worker.address.text for worker in registry.of_role(Role.CONTEXT)],
                "generation": [worker.address.text for worker in registry.of_role(Role.GENERATION)],
            },
        }
        cluster = self._service.settings.disagg_cluster
        if cluster is not None:
            info["current_workers"] = {
                f"{role.value}_servers": [
                    _registered(worker) for worker in registry.of_role(role) if not worker.leaving
                ]
                for role in Role
            }
            info["minimal_instances"] = msgspec.to_builtins(cluster.minimal_instances)
        await send_json(send, 200, info)


def _registered(worker: Worker) -> dict[str, Any]:
    """A worker as it has registered; one that has not, has no id."""
    return {
        "worker_id": worker.labels.get(WORKER_ID_LABEL, ""),
        "host": worker.address.host,
        "port": worker.address.port,
        "role": ROLE_NUMBERS[worker.role.value],
    }


class VersionEndpoint:
    """The workers' common version under upstream's key, and the proxy's own."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        await send_json(send, 200, {"version": self._service.registry.version, "proxy": __version__})
