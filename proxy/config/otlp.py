"""Reads `otlp_config`: where spans are sent."""

from __future__ import annotations

from urllib.parse import urlsplit

from proxy.config.errors import ConfigError
from proxy.config.settings import OTLPSettings
from proxy.config.sources import unknown_key
from proxy.config.values import Entry, convert, convert_mapping

_KEY = "otlp_config"
_ENDPOINT = "otlp_traces_endpoint"
_PATH = "/v1/traces"
_GRPC_PORT = 4317


def read_otlp(entry: Entry | None, warnings: list[str]) -> OTLPSettings:
    """Read the mapping; appends to `warnings`.

    The path is completed as the OpenTelemetry specification does it for OTEL_EXPORTER_OTLP_ENDPOINT.

    Raises:
        ConfigError: unknown keys, or an endpoint that is none for OTLP over HTTP.
    """
    if entry is None:
        return OTLPSettings()
    found = convert_mapping(_KEY, entry)
    for name, value in found.items():
        if name != _ENDPOINT:
            raise unknown_key(f"{_KEY}.{name}", name, frozenset({_ENDPOINT}), Entry(value, entry.origin))
    key = f"{_KEY}.{_ENDPOINT}"
    endpoint = convert(key, Entry(found.get(_ENDPOINT), entry.origin), str | None)
    if endpoint is None:
        return OTLPSettings()
    try:
        url = urlsplit(endpoint)
        port = url.port
    except ValueError:
        raise ConfigError("expected a url", origin=entry.origin, key=key) from None
    if "@" in url.netloc:
        problem = "has no place for passwords: use OTEL_EXPORTER_OTLP_HEADERS"
        raise ConfigError(problem, origin=entry.origin, key=key)
    if url.scheme not in ("http", "https") or not url.hostname:
        problem = "expected a url such as http://collector:4318: spans are sent as OTLP over HTTP"
        raise ConfigError(problem, origin=entry.origin, key=key, value=endpoint)
    if port == _GRPC_PORT:
        warnings.append(
            f"{entry.origin}: {key} names port {_GRPC_PORT}, where collectors expect gRPC; spans are sent as OTLP over "
            "HTTP, whose port is 4318"
        )
    if url.path in ("", "/"):
        url = url._replace(path=_PATH)
    return OTLPSettings(url.geturl())
