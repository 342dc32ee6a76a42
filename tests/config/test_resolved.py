"""Settings once they are loaded: shown, masked, immutable."""

import msgspec
import pytest
import yaml
from full_config import EXAMPLE, PROXY_YAML

from proxy.config.errors import ConfigError


@pytest.mark.parametrize(
    "text", ["disagg_cluster: {cluster_uri: 'etcd://a:1'}", "proxy: {metadata_server: {server_type: etcd}}"]
)
def test_workers_that_register_are_resolved(load, text):
    settings = load(text)
    again = load(yaml.safe_dump(settings.resolved(), sort_keys=False))
    assert msgspec.structs.replace(again, warnings=settings.warnings) == settings


def test_resolved_is_plain_and_loads_again(load):
    # With a metadata server the urls would not be used.
    proxy = {**PROXY_YAML, "metadata_server": None}
    settings = load(yaml.safe_dump({"proxy": proxy}) + EXAMPLE)
    text = yaml.safe_dump(settings.resolved(), sort_keys=False)
    again = load(text)
    assert again.resolved() == settings.resolved()
    assert msgspec.structs.replace(again, warnings=settings.warnings) == settings
    assert settings.resolved()["context_servers"] == {
        "num_instances": 2,
        "urls": ["ctx0:8001", "ctx1:8001"],
        "router": {
            "type": "round_robin",
            "use_tokens": False,
            "match_threshold": 0.75,
            "tokens_per_block": None,
            "use_token_ids": False,
            "hash_skip_count": 0,
            "max_sessions": 100_000,
            "use_harmony": None,
        },
    }


def test_secrets_are_masked(load):
    settings = load("internal_request_auth_key: hunter2")
    assert settings.internal_request_auth_key == "hunter2"
    assert settings.resolved()["internal_request_auth_key"] == "***"
    assert "hunter2" not in repr(settings)
    assert load("").resolved()["internal_request_auth_key"] is None
    with pytest.raises(ConfigError) as caught:
        load("context_servers: [{internal_request_auth_key: hunter2}]")
    assert "hunter2" not in str(caught.value)


def test_settings_are_immutable(load):
    settings = load(EXAMPLE)
    for struct in (settings, settings.proxy, settings.context_servers, settings.context_servers.router):
        with pytest.raises(AttributeError):
            setattr(struct, struct.__struct_fields__[0], None)
