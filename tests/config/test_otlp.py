import pytest

from proxy.config.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("", None),
        ("otlp_config:", None),
        ("otlp_config: {}", None),
        ("otlp_config: {otlp_traces_endpoint: null}", None),
        ("otlp_config: {otlp_traces_endpoint: 'http://c:4318'}", "http://c:4318/v1/traces"),
        ("otlp_config: {otlp_traces_endpoint: 'https://c/'}", "https://c/v1/traces"),
        ("otlp_config: {otlp_traces_endpoint: 'http://c:4318/v1/traces'}", "http://c:4318/v1/traces"),
        ("otlp_config: {otlp_traces_endpoint: 'http://c/tenant/a'}", "http://c/tenant/a"),
    ],
)
def test_the_endpoint(load, text, endpoint):
    settings = load(text)
    assert settings.otlp_config.otlp_traces_endpoint == endpoint
    assert settings.resolved()["otlp_config"] == {"otlp_traces_endpoint": endpoint}
    assert not [warning for warning in settings.warnings if "otlp" in warning]


def test_a_port_of_grpc_is_suspicious(load):
    settings = load("otlp_config: {otlp_traces_endpoint: 'http://c:4317'}")
    assert any("expect gRPC" in warning for warning in settings.warnings)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("otlp_config: [a]", "expected a mapping"),
        ("otlp_config: {otlp_traces_endpont: x}", '"otlp_traces_endpoint"?'),
        ("otlp_config: {headers: x}", "known keys: otlp_traces_endpoint"),
        ("otlp_config: {otlp_traces_endpoint: 5}", "expected"),
        ("otlp_config: {otlp_traces_endpoint: 'grpc://c:4317'}", "OTLP over HTTP"),
        ("otlp_config: {otlp_traces_endpoint: 'c:4318'}", "OTLP over HTTP"),
        ("otlp_config: {otlp_traces_endpoint: 'http://c:port'}", "expected a url"),
        ("otlp_config: {otlp_traces_endpoint: 'http://u:geheim@c'}", "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_mistakes(load, text, problem):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert problem in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert caught.value.key.startswith("otlp_config")
