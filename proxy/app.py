"""Builds the ASGI application: one visible list of middlewares around one table of routes."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.config.settings import Settings
from proxy.endpoints.cluster import ClusterInfoEndpoint, VersionEndpoint
from proxy.endpoints.health import ReadyEndpoint, live
from proxy.endpoints.inference import InferenceEndpoint
from proxy.endpoints.metrics import MetricsEndpoint
from proxy.endpoints.models import ModelsEndpoint
from proxy.lifecycle.service import Service
from proxy.middleware.body import BodyMiddleware
from proxy.middleware.errors import ErrorsMiddleware
from proxy.middleware.field_policy import FieldPolicyMiddleware
from proxy.middleware.record import RecordMiddleware, Settle
from proxy.router import Router, Routes
from proxy.telemetry.access_log import log_access
from proxy.telemetry.collector import ProxyCollector
from proxy.telemetry.counters import Counters


def build_app(service: Service) -> ASGIApp:
    """The whole application for a service, outermost middleware last."""
    settings = service.settings
    counters = Counters()
    metrics = CollectorRegistry()
    metrics.register(ProxyCollector(service, counters))
    app: ASGIApp = Router(_routes(service, MetricsEndpoint(metrics)), settings.proxy.root_path)
    app = ErrorsMiddleware(app)
    settle: tuple[Settle, ...] = (
        (counters.settle, log_access) if settings.proxy.access_log else (counters.settle,)
    )
    return RecordMiddleware(app, settle=settle)


def _routes(service: Service, metrics: MetricsEndpoint) -> Routes:
    ready = ReadyEndpoint(service)
    return {
        "/v1/chat/completions": {"POST": _inference(service, path="/v1/chat/completions", chat=True)},
        "/v1/completions": {"POST": _inference(service, path="/v1/completions", chat=False)},
        "/v1/models": {"GET": ModelsEndpoint(service)},
        "/version": {"GET": VersionEndpoint(service)},
        "/health": {"GET": ready},
        "/health/live": {"GET": live},
        "/health/ready": {"GET": ready},
        "/cluster_info": {"GET": ClusterInfoEndpoint(service)},
        "/metrics": {"GET": metrics},
        "/prometheus/metrics": {"GET": metrics},
    }


def _inference(service: Service, *, path: str, chat: bool) -> ASGIApp:
    """An inference route with the middlewares that only such routes need, outermost last."""
    settings = service.settings
    app: ASGIApp = InferenceEndpoint(service, path=path, chat=chat)
    app = FieldPolicyMiddleware(
        app,
        policy=service.chat_policy if chat else service.completions_policy,
        allow_chat_template=settings.allow_request_chat_template,
    )
    return BodyMiddleware(app, max_bytes=settings.proxy.max_body_bytes)


class Application:
    """The application with its life: the service starts and ends with the server (ASGI lifespan)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._app: ASGIApp | None = None
        self.service: Service | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the lifespan or a request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http" and self._app is not None:
            await self._app(scope, receive, send)
        else:
            raise RuntimeError(
                f"cannot serve {scope['type']}: the lifespan has not started or HTTP was expected"
            )

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self.service = service = Service(self._settings)
        self._app = build_app(service)
        service.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await service.close()
        await send({"type": "lifespan.shutdown.complete"})
