"""Tracing when it is configured; nothing of OpenTelemetry is imported otherwise."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from proxy.config.errors import ConfigError

if TYPE_CHECKING:
    from proxy.config.settings import Settings
    from proxy.telemetry.tracing import Tracing

_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def check_tracing(settings: Settings) -> None:
    """Raise `ConfigError` when tracing is configured and the extra `otel` is not installed."""
    if settings.otlp_config.otlp_traces_endpoint is not None and not all(map(_installed, _PACKAGES)):
        raise ConfigError("spans need the extra otel: pip install 'disagg-proxy[otel]'", key="otlp_config")


def open_tracing(settings: Settings) -> Tracing | None:
    """Tracing as configured, or None."""
    endpoint = settings.otlp_config.otlp_traces_endpoint
    if endpoint is None:
        return None
    from proxy.telemetry.tracing import Tracing

    return Tracing(endpoint)


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of a package above
        return False
