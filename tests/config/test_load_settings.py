import msgspec
import pytest
import yaml
from full_config import EXAMPLE, PROXY_YAML

from proxy.config.address import parse_worker_address
from proxy.config.discovery.dns import DnsEntry
from proxy.config.discovery.file import FileEntry
from proxy.config.discovery.kubernetes import KubernetesEntry
from proxy.config.errors import ConfigError
from proxy.config.listed_worker import ListedWorker
from proxy.config.load import load_settings
from proxy.config.metadata_server import MetadataServer
from proxy.config.minimal_instances import MinimalInstances
from proxy.config.pass_through import PassThroughRoute
from proxy.config.settings import ProxySettings, RouterSettings, ServerSection, Settings
from proxy.config.sources import PROXY_KEYS, SECTION_KEYS, TOP_KEYS
from proxy.wire.fields.own import FieldRule

TWO = "context_servers: {urls: ['a:1']}\ngeneration_servers: {urls: ['b:1']}\n"


def addresses(*texts):
    return tuple(map(parse_worker_address, texts))


def test_upstream_example(load):
    settings = load(EXAMPLE)
    assert settings == Settings(
        hostname="0.0.0.0",
        port=8000,
        context_servers=ServerSection(2, addresses("ctx0:8001", "ctx1:8001"), RouterSettings("round_robin")),
        generation_servers=ServerSection(1, addresses("gen0:8002"), RouterSettings("load_balancing")),
        max_retries=1,
        gen_tokids_ctxbytes=True,
        gen_strip_message_history=True,
        server_keep_alive_timeout=3600,
        origin="disagg.yaml",
    )


@pytest.mark.parametrize("text", [None, "", "# nothing\n", "context_servers:\ngeneration_servers:\nproxy:\n"])
def test_without_keys_the_defaults_hold(load, text):
    settings = load(text)
    assert msgspec.structs.replace(settings, warnings=(), origin=None) == Settings()
    assert (settings.hostname, settings.port, settings.max_retries) == ("localhost", 8000, 1)
    assert (settings.server_keep_alive_timeout, settings.node_id) == (75, None)
    assert settings.server_start_timeout == 180.0
    assert settings.warnings == (
        "context_servers has no urls: the proxy cannot become ready",
        "generation_servers has no urls: the proxy cannot become ready",
    )


def test_defaults_of_the_proxy_mapping():
    assert msgspec.to_builtins(ProxySettings()) == {
        "max_body_bytes": 134217728,
        "max_header_bytes": 65536,
        "max_connections_per_worker": 0,
        "max_inflight": 0,
        "max_inflight_per_key": 0,
        "max_inflight_per_context_worker": 0,
        "max_inflight_per_generation_worker": 0,
        "max_queued": 4096,
        "max_queued_bytes": 1073741824,
        "queue_order": "fifo",
        "timeout_queue": 60,
        "pause_mode": "queue",
        "sse_keepalive_seconds": 0,
        "tokenizer": None,
        "frontend_tokenisation": False,
        "tokenisation_shadow": 0.01,
        "tokenisation_max_mismatch": 0.01,
        "tokenisation_threads": 2,
        "api_keys_file": None,
        "admin_listen": None,
        "admin_token_file": None,
        "rl_control": False,
        "rl_control_public": False,
        "rl_fanout_paths": (
            "/release_memory",
            "/resume_memory",
            "/update_weights",
            "/memory_status",
            "/server_info",
        ),
        "rl_fanout_timeout": 600,
        "rl_flush_path": None,
        "worker_api_key_file": None,
        "forward_headers": (),
        "cors_allow_origins": (),
        "tls_certfile": None,
        "tls_keyfile": None,
        "tls_client_ca": None,
        "worker_tls_ca": None,
        "worker_tls_certfile": None,
        "worker_tls_keyfile": None,
        "worker_tls_verify": True,
        "timeout_connect": 5,
        "timeout_context": 180,
        "timeout_first_byte": 180,
        "timeout_idle": 180,
        "timeout_total": 0,
        "fallback_aggregated": "never",
        "benchmark_gen_only": False,
        "retry_budget": 0.2,
        "on_disconnect_after_prefill": "drain",
        "header_timeout": 15,
        "client_stall_timeout": 180,
        "server_start_timeout": 180,
        "drain_grace": 5,
        "drain_timeout": 600,
        "probe_interval": 1,
        "probe_timeout": 5,
        "eject_after": 3,
        "eject_seconds": 2,
        "fail_open": True,
        "slow_start_seconds": 10,
        "canary_interval": 0,
        "workers": (),
        "discovery": (),
        "minimal_instances": None,
        "metadata_server": None,
        "cluster_storage_key_file": None,
        "etcd_user": None,
        "etcd_password_file": None,
        "etcd_tls_ca": None,
        "etcd_tls_certfile": None,
        "etcd_tls_keyfile": None,
        "topology_strict": False,
        "accept_prompt_token_ids": False,
        "worker_version": "auto",
        "worker_dialect": "trtllm",
        "unknown_fields": "drop",
        "field_rules": (),
        "harmony_models": (),
        "developer_as_system": (),
        "root_path": "",
        "model_aliases": {},
        "pass_through": (),
        "stream_coalesce_ms": 0,
        "several_choices": "fan_out",
        "max_choices": 128,
        "timing_headers": True,
        "nemo_timing": False,
        "request_log_dir": None,
        "request_log_max_bytes": 67108864,
        "request_log_max_files": 16,
        "access_log": True,
        "log_level": "info",
        "log_format": "text",
    }


PROXY_RESULT = ProxySettings(
    **PROXY_YAML
    | {
        "max_body_bytes": 67108864,
        "request_log_max_bytes": 1048576,
        "max_queued_bytes": 2097152,
        "harmony_models": ("gpt-oss-120b",),
        "developer_as_system": ("llama",),
        "field_rules": (
            FieldRule("top_k", "default", value=20),
            FieldRule("foo", "rename", to="seed"),
        ),
        "rl_fanout_paths": ("/update_weights",),
        "pass_through": (PassThroughRoute("/v1/embeddings", "context", ("POST", "GET")),),
        "forward_headers": ("x-tenant",),
        "cors_allow_origins": ("https://example.com:8443",),
        "workers": (
            ListedWorker(*addresses("c:1"), "context", None, {"domain": "rack1", "zone": "a"}),
            ListedWorker(*addresses("g:1"), "generation", "llama"),
        ),
        "discovery": (
            FileEntry(name="file", path="/run/workers.yaml", interval=2.0),
            DnsEntry(name="dns:ctx", role="context", host="ctx", port=8001, labels={"zone": "a"}),
            KubernetesEntry(
                name="kubernetes:gen", role="generation", service="gen", port="http", domain="zone"
            ),
        ),
        "minimal_instances": MinimalInstances(2, 3),
        "metadata_server": MetadataServer("etcd", "etcd", 2380, 1.5, 2.5),
    }
)


def test_every_proxy_key_from_yaml(load):
    assert PROXY_YAML.keys() == set(ProxySettings.__struct_fields__)
    settings = load(yaml.safe_dump({"proxy": PROXY_YAML}))
    assert settings.proxy == PROXY_RESULT
    assert settings.server_start_timeout == 7.0


def test_every_proxy_key_from_the_environment(load):
    environ = {
        f"DISAGG_PROXY_{name.upper()}": yaml.safe_dump(value)
        if isinstance(value, list | dict)
        else str(value)
        for name, value in PROXY_YAML.items()
    }
    assert load("", environ=environ).proxy == PROXY_RESULT


def test_every_proxy_key_from_the_command_line(load):
    assert load("", **PROXY_YAML).proxy == PROXY_RESULT


TOP_YAML = {
    "hostname": "::",
    "port": 0,
    "max_retries": 0,
    "schedule_style": "context_first",
    "gen_tokids_ctxbytes": True,
    "gen_strip_message_history": True,
    "allow_request_chat_template": True,
    "node_id": 255,
    "server_keep_alive_timeout": 3600,
    "internal_request_auth_key": "secret",
}


@pytest.mark.parametrize("source", ["yaml", "environment", "command line"])
def test_every_top_level_key(load, source):
    if source == "yaml":
        settings = load(yaml.safe_dump(TOP_YAML))
    elif source == "environment":
        settings = load(
            "", environ={f"DISAGG_PROXY_{name.upper()}": str(value) for name, value in TOP_YAML.items()}
        )
    else:
        settings = load("", **TOP_YAML)
    assert {name: getattr(settings, name) for name in TOP_YAML} == TOP_YAML


def test_precedence(load):
    text = "port: 1\nproxy: {timeout_idle: 1, timeout_context: 1, log_level: error}"
    environ = {
        "DISAGG_PROXY_PORT": "2",
        "DISAGG_PROXY_TIMEOUT_IDLE": "2",
        "DISAGG_PROXY_TIMEOUT_CONTEXT": "2",
    }
    settings = load(text, environ=environ, port=3, timeout_idle=3.0)
    assert settings.port == 3
    assert settings.proxy.timeout_idle == 3.0
    assert settings.proxy.timeout_context == 2.0
    assert settings.proxy.log_level == "error"
    assert settings.proxy.timeout_first_byte == 180.0


def test_a_wrong_value_that_is_overridden_does_not_matter(load):
    assert load("port: nonsense", port=1).port == 1
    assert load("num_workers: 4", environ={"DISAGG_PROXY_NUM_WORKERS": "1"}).port == 8000


def test_sections_from_the_environment(load):
    environ = {
        "DISAGG_PROXY_CONTEXT_SERVERS": "{urls: [ctx0:1, ctx1:1], router: {type: load_balancing}}",
        "DISAGG_PROXY_GENERATION_SERVERS": "urls: [gen0:1]",
    }
    settings = load(EXAMPLE, environ=environ)
    assert settings.context_servers == ServerSection(
        2, addresses("ctx0:1", "ctx1:1"), RouterSettings("load_balancing")
    )
    assert settings.generation_servers == ServerSection(1, addresses("gen0:1"))
    with pytest.raises(
        ConfigError, match=r"^environment variable DISAGG_PROXY_CONTEXT_SERVERS: context_servers\.urls"
    ):
        load("", environ={"DISAGG_PROXY_CONTEXT_SERVERS": "{urls: a:1}"})


def test_variables_that_are_ignored(load):
    quiet = load("").warnings
    environ = {
        "DISAGG_PROXY_PORT": "tcp://10.0.0.7:8000",
        "DISAGG_PROXY_PORT_8000_TCP": "tcp://10.0.0.7:8000",
        "DISAGG_PROXY_PORT_8000_TCP_ADDR": "10.0.0.7",
        "DISAGG_PROXY_PORT_8000_TCP_PORT": "8000",
        "DISAGG_PROXY_PORT_8000_TCP_PROTO": "tcp",
        "DISAGG_PROXY_SERVICE_HOST": "10.0.0.7",
        "DISAGG_PROXY_SERVICE_PORT": "8000",
        "DISAGG_PROXY_SERVICE_PORT_HTTP": "8000",
        "DISAGG_PROXY_METRICS_SERVICE_HOST": "10.0.0.7",
        "DISAGG_PROXY_METRICS_PORT": "tcp://10.0.0.8:9000",
        "DISAGG_PROXY_MAX_RETRIES": "",
        "DISAGG_PROXY_HOSTNAME": " ",
        "PORT": "99",
        "PATH": "/bin",
    }
    settings = load("", environ=environ)
    assert (settings.port, settings.hostname, settings.max_retries) == (8000, "localhost", 1)
    assert settings.warnings == quiet


def test_unknown_variables(load):
    assert (
        "environment variable DISAGG_PROXY_IMAGE is no setting of this program and has no effect"
        in load("", environ={"DISAGG_PROXY_IMAGE": "x"}).warnings
    )
    for variable, meant in [
        ("DISAGG_PROXY_TIMEOUT_IDEL", "DISAGG_PROXY_TIMEOUT_IDLE"),
        ("DISAGG_PROXY_PRT", "DISAGG_PROXY_PORT"),
        ("DISAGG_PROXY_port", "DISAGG_PROXY_PORT"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load("", environ={variable: "1"})
        assert (
            str(caught.value) == f'environment variable {variable}: unknown variable; did you mean "{meant}"?'
        )


@pytest.mark.parametrize(
    ("hostname", "inside", "warns"),
    [
        ("localhost", True, True),
        ("LocalHost", True, True),
        ("127.0.0.1", True, True),
        ("127.9.9.9", True, True),
        ("'::1'", True, True),
        ("0.0.0.0", True, False),
        ("'::'", True, False),
        ("proxy.example", True, False),
        ("localhost", False, False),
    ],
)
def test_loopback_in_a_container_warns(load, tmp_path, hostname, inside, warns):
    mark = tmp_path / "dockerenv"
    if inside:
        mark.touch()
    text = f"hostname: {hostname}\n{TWO}"
    for settings in (
        load(text, marks=[str(mark)]),
        load(text, environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"} if inside else {}),
    ):
        assert len(settings.warnings) == warns
        assert all(
            "inside a container nobody outside can connect" in warning for warning in settings.warnings
        )


def test_container_marks_have_defaults():
    assert load_settings(None, overrides={"hostname": "0.0.0.0"}, environ={}).hostname == "0.0.0.0"


def test_keys_are_unambiguous():
    assert TOP_KEYS.isdisjoint(PROXY_KEYS)
    assert (TOP_KEYS | PROXY_KEYS).isdisjoint(SECTION_KEYS)
