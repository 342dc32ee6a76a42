"""All admin routes. Whoever adds one adds its row."""

from __future__ import annotations

from proxy.endpoints.admin.drain import DrainEndpoint
from proxy.endpoints.admin.pause import PauseEndpoint, ResumeEndpoint
from proxy.endpoints.admin.status import StatusEndpoint
from proxy.endpoints.admin.workers import WorkersEndpoint
from proxy.lifecycle.service import Service
from proxy.router import Routes


def admin_routes(service: Service) -> Routes:
    """The table of the admin listener."""
    member = service.member
    return {
        "/admin/pause": {"POST": PauseEndpoint(member)},
        "/admin/resume": {"POST": ResumeEndpoint(member)},
        "/admin/drain": {"POST": DrainEndpoint(member)},
        "/admin/workers/drain": {"POST": WorkersEndpoint(service, "draining")},
        "/admin/workers/resume": {"POST": WorkersEndpoint(service, "listed")},
        "/admin/status": {"GET": StatusEndpoint(service)},
    }
