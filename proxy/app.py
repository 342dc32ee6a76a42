"""Builds the ASGI application: one visible list of middlewares around one table of routes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.config.errors import ConfigError
from proxy.config.listen import parse_listen_address
from proxy.config.settings import Settings
from proxy.downstream.admin_listener import AdminListener
from proxy.endpoints.admin.page import page_routes
from proxy.endpoints.admin.routes import admin_routes
from proxy.endpoints.anthropic import COUNT_TOKENS, MESSAGES, AnthropicEndpoint, anthropic_event
from proxy.endpoints.cluster import ClusterInfoEndpoint, VersionEndpoint
from proxy.endpoints.cluster_storage import STORAGE_PATHS, storage_routes
from proxy.endpoints.control.routes import control_routes
from proxy.endpoints.generate.endpoint import GenerateEndpoint
from proxy.endpoints.generate.sglang import SGLangShape
from proxy.endpoints.generate.vllm import VLLMShape
from proxy.endpoints.health import ReadyEndpoint, live
from proxy.endpoints.inference import InferenceEndpoint
from proxy.endpoints.metrics import MetricsEndpoint
from proxy.endpoints.models import ModelsEndpoint
from proxy.endpoints.responses import RESPONSES, ResponsesPolicy
from proxy.endpoints.several.middleware import SeveralChoicesMiddleware
from proxy.endpoints.single_leg import SingleLegEndpoint
from proxy.endpoints.tokenize_elsewhere import WorkersTokenizeEndpoint, detokenize_nowhere
from proxy.fleet.member import Member, SoleMember
from proxy.lifecycle.commands import register_commands
from proxy.lifecycle.service import Service
from proxy.lifecycle.worker_commands import register_worker_commands
from proxy.middleware.admin_token import AdminTokenMiddleware
from proxy.middleware.affinity import AffinityMiddleware
from proxy.middleware.api_key import OPEN_PATHS, ApiKeyMiddleware
from proxy.middleware.body import BodyMiddleware
from proxy.middleware.cors import CorsMiddleware
from proxy.middleware.errors import ErrorsMiddleware
from proxy.middleware.field_policy import FieldPolicyMiddleware
from proxy.middleware.public_control import PublicControlMiddleware
from proxy.middleware.record import RecordMiddleware, Settle
from proxy.middleware.same_origin import SameOriginMiddleware
from proxy.middleware.tracing import TracingMiddleware
from proxy.named_files import admin_token, api_keys, storage_key
from proxy.router import Router, Routes
from proxy.telemetry.access_log import log_access
from proxy.telemetry.collector import ProxyCollector
from proxy.telemetry.counters import Counters
from proxy.telemetry.exposition import Exposition
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.gauges import Gauges
from proxy.telemetry.model_names import ModelNames, served_models
from proxy.telemetry.recent_errors import RECENT_ERRORS, RecentErrors
from proxy.telemetry.request_log import RequestLog, open_request_log
from proxy.telemetry.service_gauges import Traffic, service_gauges
from proxy.telemetry.tracing_setup import open_tracing
from proxy.tokenisation.setup import open_frontend, open_threads, open_tokenizer
from proxy.wire.request import read_request, read_responses_request
from proxy.workers.worker import Role

if TYPE_CHECKING:
    from proxy.telemetry.tracing import Tracing

# Until the server listens: of a process that takes another one's place, whose clients wait in the queue of its socket;
# and of one that nobody waits for.
_MOST_SECONDS_OF_SUCCESSOR, _MOST_SECONDS_OF_FIRST = 5.0, 2.0
_logger = logging.getLogger("proxy")


def build_app(
    service: Service,
    gauges: Gauges,
    request_log: RequestLog | None = None,
    tracing: Tracing | None = None,
) -> ASGIApp:
    """The whole application for a service, outermost middleware last."""
    settings = service.settings
    counters = Counters(service.member.row, ModelNames(lambda: served_models(service)))
    collector = ProxyCollector(FleetView(service.member.metrics), gauges.refresh, upstream=True)
    metrics = MetricsEndpoint(Exposition(collector, gauges))
    app: ASGIApp = Router(_routes(service, metrics, tracing), settings.proxy.root_path)
    keys = api_keys(settings.proxy)
    if keys is not None:
        # The cluster storage may have a key of its own.
        open_paths = OPEN_PATHS | STORAGE_PATHS if storage_key(settings.proxy) is not None else OPEN_PATHS
        app = ApiKeyMiddleware(app, keys=keys, root_path=settings.proxy.root_path, open_paths=open_paths)
    token = admin_token(settings.proxy)
    if settings.proxy.rl_control_public and token is not None:
        app = PublicControlMiddleware(
            app, routes=control_routes(service), token=token, root_path=settings.proxy.root_path
        )
    app = ErrorsMiddleware(app, timing=settings.proxy.timing_headers)
    if settings.proxy.cors_allow_origins:
        app = CorsMiddleware(app, origins=settings.proxy.cors_allow_origins)
    errors = RecentErrors()
    service.member.commands.register(RECENT_ERRORS, errors.tell)
    settle: tuple[Settle, ...] = (counters.settle, errors.settle)
    if settings.proxy.access_log:
        settle += (log_access,)
    if request_log is not None:
        settle += (request_log.settle,)
    if tracing is not None:
        settle += (tracing.settle,)
    return RecordMiddleware(app, settle=settle)


def build_admin_app(service: Service) -> ASGIApp:
    """The application behind the admin listener, outermost middleware last."""
    settings = service.settings
    page = page_routes()
    app: ASGIApp = Router({**control_routes(service), **page, **admin_routes(service)})
    token = admin_token(settings.proxy)
    if token is not None:
        # The page asks for the token itself: browsers cannot send one when they open it.
        app = AdminTokenMiddleware(app, token=token, open_paths=frozenset(page))
    else:
        app = SameOriginMiddleware(app)
    app = ErrorsMiddleware(app)
    return RecordMiddleware(app, settle=(log_access,) if settings.proxy.access_log else ())


def _admin_listener(service: Service) -> AdminListener | None:
    """One process of a fleet listens; what it is asked for, all of them do."""
    proxy = service.settings.proxy
    if proxy.admin_listen is None or service.member.index:
        return None
    return AdminListener(build_admin_app(service), parse_listen_address(proxy.admin_listen), proxy)


def _routes(service: Service, metrics: MetricsEndpoint, tracing: Tracing | None) -> Routes:
    ready = ReadyEndpoint(service)
    completions = _inference(service, tracing, path="/v1/completions", chat=False)
    return {
        RESPONSES: {"POST": _responses(service, tracing)},
        MESSAGES: {"POST": _anthropic(service, tracing, path=MESSAGES, role=Role.GENERATION)},
        COUNT_TOKENS: {"POST": _anthropic(service, tracing, path=COUNT_TOKENS, role=Role.CONTEXT)},
        **_pass_through(service, tracing),
        "/v1/chat/completions": {
            "POST": _inference(service, tracing, path="/v1/chat/completions", chat=True)
        },
        "/v1/completions": {"POST": completions},
        "/generate": {"POST": GenerateEndpoint(service, SGLangShape(), completions)},
        "/inference/v1/generate": {"POST": GenerateEndpoint(service, VLLMShape(), completions)},
        **_tokenize(service),
        "/v1/models": {"GET": ModelsEndpoint(service)},
        "/version": {"GET": VersionEndpoint(service)},
        "/health": {"GET": ready},
        "/health/live": {"GET": live},
        "/health/ready": {"GET": ready},
        "/cluster_info": {"GET": ClusterInfoEndpoint(service)},
        "/metrics": {"GET": metrics},
        "/prometheus/metrics": {"GET": metrics},
        **storage_routes(service.settings, service.member),
    }


def _pass_through(service: Service, tracing: Tracing | None) -> Routes:
    return {
        route.path: dict.fromkeys(
            route.methods,
            _traced(SingleLegEndpoint(service, path=route.path, role=Role(route.role)), tracing),
        )
        for route in service.settings.proxy.pass_through
    }


def _tokenize(service: Service) -> Routes:
    if service.tokenizer is None or service.token_threads is None:
        tokenize, detokenize = WorkersTokenizeEndpoint(service), detokenize_nowhere
        return {"/tokenize": {"POST": tokenize}, "/detokenize": {"POST": detokenize}}
    # Needs the extra `tokenize`.
    from proxy.endpoints.tokenize import DetokenizeEndpoint, TokenizeEndpoint

    parts = service, service.tokenizer, service.token_threads
    return {
        "/tokenize": {"POST": TokenizeEndpoint(*parts)},
        "/detokenize": {"POST": DetokenizeEndpoint(*parts)},
    }


def _traced(app: ASGIApp, tracing: Tracing | None) -> ASGIApp:
    return TracingMiddleware(app, tracing=tracing) if tracing is not None else app


def _inference(service: Service, tracing: Tracing | None, *, path: str, chat: bool) -> ASGIApp:
    """An inference route with the middlewares that only such routes need, outermost last."""
    settings = service.settings
    several = settings.proxy.several_choices
    read = partial(read_request, chat=chat, several=several == "pass")
    app: ASGIApp = InferenceEndpoint(service, path=path, read=read)
    if several == "fan_out":
        app = SeveralChoicesMiddleware(
            app, chat=chat, most=settings.proxy.max_choices, admission=service.admission
        )
    app = FieldPolicyMiddleware(
        app,
        policy=lambda: service.registry.capabilities.policy(chat=chat),
        allow_chat_template=settings.allow_request_chat_template,
    )
    return _with_body(app, service, tracing)


def _responses(service: Service, tracing: Tracing | None) -> ASGIApp:
    app: ASGIApp = InferenceEndpoint(service, path=RESPONSES, read=read_responses_request)
    return _with_body(ResponsesPolicy(app, service), service, tracing)


def _with_body(app: ASGIApp, service: Service, tracing: Tracing | None) -> ASGIApp:
    needs = service.registry.needs
    if needs:
        app = AffinityMiddleware(app, needs=needs)
    return _traced(BodyMiddleware(app, max_bytes=service.settings.proxy.max_body_bytes), tracing)


def _anthropic(service: Service, tracing: Tracing | None, *, path: str, role: Role) -> ASGIApp:
    app: ASGIApp = SingleLegEndpoint(
        service, path=path, role=role, error_event=anthropic_event, null_passes=False
    )
    return _traced(AnthropicEndpoint(app, service, path=path, role=role), tracing)


class Application:
    """The application with its life: the service starts and ends with the server (ASGI lifespan).

    Args:
        settings: the configuration.
        member: the process's place in its fleet; alone when None.

    Attributes:
        service: while the application lives.
        admin: its admin listener, if this process has one.
        traffic: tells requests in flight and open connections; set by the server.
    """

    def __init__(self, settings: Settings, member: Member | None = None) -> None:
        self._settings = settings
        self._member = member if member is not None else SoleMember()
        self._app: ASGIApp | None = None
        self.service: Service | None = None
        self.admin: AdminListener | None = None
        self.traffic: Traffic = lambda: (0, 0)

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
        self.service = service = Service(self._settings, self._member)
        try:
            service.tokenizer = open_tokenizer(self._settings.proxy)
        except ConfigError as error:
            _logger.error("%s", error)
            await send({"type": "lifespan.startup.failed", "message": "the tokenizer cannot be loaded"})
            return
        service.token_threads = open_threads(service.tokenizer, self._settings.proxy)
        service.tokenisation = open_frontend(service.tokenizer, self._settings.proxy, self._member.row)
        gauges = Gauges(self._member.row, service_gauges(service, lambda: self.traffic()))
        try:
            request_log = open_request_log(self._settings.proxy, self._member.index, self._member.row)
        except OSError as error:
            _logger.error("the request log cannot be written: %s", error)
            await send({"type": "lifespan.startup.failed", "message": "the request log cannot be written"})
            return
        tracing = open_tracing(self._settings)
        self._app = build_app(service, gauges, request_log, tracing)
        register_commands(service)
        register_worker_commands(service)
        service.start()
        await self._member.open()
        self.admin = _admin_listener(service)
        if self.admin is not None:
            try:
                await self.admin.open()
            except OSError as error:
                _logger.error("cannot listen on %s: %s", self._settings.proxy.admin_listen, error)
                await service.close()
                await send({"type": "lifespan.startup.failed", "message": "the admin listener cannot listen"})
                return
        await _wait_ready(service, successor=self._member.successor)
        gauges.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self.admin is not None:
            await self.admin.close()
        gauges.close()
        await service.close()
        if request_log is not None:
            request_log.close()
        if tracing is not None:
            tracing.close()
        self._member.close()
        await send({"type": "lifespan.shutdown.complete"})


async def _wait_ready(service: Service, *, successor: bool) -> None:
    """Do not listen before the first probes: a balancer without health checks sends requests to whoever listens.

    What is not ready after them may take long, and is told at `/health`; a successor waits a little longer.
    """

    def waited() -> bool:
        return service.ready or service.draining or (service.registry.asked_all and not successor)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_MOST_SECONDS_OF_SUCCESSOR if successor else _MOST_SECONDS_OF_FIRST):
            while not waited():  # noqa: ASYNC110 - a start-up, not a hot path
                await asyncio.sleep(0.02)
