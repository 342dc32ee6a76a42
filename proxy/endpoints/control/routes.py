"""All control routes. Whoever adds one adds its row."""

from __future__ import annotations

from proxy.endpoints.control.workers import WorkerEndpoint, WorkersEndpoint
from proxy.lifecycle.service import Service
from proxy.router import Routes


def control_routes(service: Service) -> Routes:
    """The table; empty unless `rl_control` is on."""
    if not service.settings.proxy.rl_control:
        return {}
    workers, worker = WorkersEndpoint(service), WorkerEndpoint(service)
    return {
        "/workers": {"GET": workers.list, "POST": workers.add},
        "/workers/*": {"GET": worker.get, "DELETE": worker.remove, "POST": worker.change},
    }
