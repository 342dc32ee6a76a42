"""All control routes. Whoever adds one adds its row."""

from __future__ import annotations

from starlette.types import ASGIApp

from proxy.config.pass_through import OWN_PATHS
from proxy.endpoints.control.fanout import Fanout, FanoutEndpoint
from proxy.endpoints.control.pause import PauseAliasEndpoint, PauseStatusEndpoint, ResumeAliasEndpoint
from proxy.endpoints.control.requests import AbortRequestEndpoint, LoadsEndpoint, refuse_flush
from proxy.endpoints.control.workers import WorkerEndpoint, WorkersEndpoint
from proxy.lifecycle.service import Service
from proxy.router import Routes

MEMORY_ALIASES = {
    "/release_memory_occupation": "/release_memory",
    "/resume_memory_occupation": "/resume_memory",
}
"""SGLang's names of two routes of TensorRT-LLM, with the same body."""


def control_routes(service: Service) -> Routes:
    """The table; empty unless `rl_control` is on."""
    if not service.settings.proxy.rl_control:
        return {}
    member = service.member
    workers, worker = WorkersEndpoint(service), WorkerEndpoint(service)
    resume = {"POST": ResumeAliasEndpoint(member)}
    return {
        **_fanout_routes(service),
        "/workers": {"GET": workers.list, "POST": workers.add},
        "/workers/*": {"GET": worker.get, "DELETE": worker.remove, "POST": worker.change},
        "/pause": {
            "GET": PauseStatusEndpoint(member),
            "POST": PauseAliasEndpoint(member, mode="wait"),
        },
        "/pause_generation": {"POST": PauseAliasEndpoint(member, mode="abort")},
        "/resume": resume,
        "/continue_generation": resume,
        "/resume_generation": resume,
        "/abort_request": {"POST": AbortRequestEndpoint(member)},
        "/v1/loads": {"GET": LoadsEndpoint(member)},
    }


def _fanout_routes(service: Service) -> Routes:
    """Of the paths that are called on all workers; a route of the proxy's own is not covered by one of them."""
    proxy, fanout = service.settings.proxy, Fanout(service)
    below = FanoutEndpoint(fanout, proxy.rl_fanout_paths)
    routes: dict[str, dict[str, ASGIApp]] = {"/admin/fanout/*": {"GET": below, "POST": below}}
    for path in [path for path in proxy.rl_fanout_paths if path not in OWN_PATHS]:
        routes[path] = dict.fromkeys(("GET", "POST"), FanoutEndpoint(fanout, path=path))
    for alias, path in MEMORY_ALIASES.items():
        if path in proxy.rl_fanout_paths:
            routes.setdefault(alias, {"POST": FanoutEndpoint(fanout, path=path)})
    flush: ASGIApp = (
        refuse_flush
        if proxy.rl_flush_path is None
        else FanoutEndpoint(fanout, path=proxy.rl_flush_path, method="POST")
    )
    for path in ("/flush_cache", "/reset_prefix_cache"):
        routes.setdefault(path, {"GET": flush, "POST": flush})
    return routes
