import pytest

from proxy.config.errors import ConfigError
from proxy.config.listen import ListenAddress, parse_listen_address


@pytest.mark.parametrize(
    ("text", "address", "private"),
    [
        ("127.0.0.1:9000", ListenAddress("127.0.0.1", 9000), True),
        ("localhost:0", ListenAddress("localhost", 0), True),
        ("[::1]:9000", ListenAddress("::1", 9000), True),
        ("[::]:00", ListenAddress("::", 0), False),
        ("0.0.0.0:9000", ListenAddress("0.0.0.0", 9000), False),
        ("proxy.example:9000", ListenAddress("proxy.example", 9000), False),
        ("unix:/run/admin.sock", ListenAddress("localhost", 0, "/run/admin.sock"), True),
    ],
)
def test_listen_addresses(text, address, private):
    assert parse_listen_address(text) == address
    assert parse_listen_address(text).private is private


@pytest.mark.parametrize(
    "text", ["9000", ":9000", "host", "http://host:1", "::1:9000", "unix:a", "host:x", "h:70000"]
)
def test_bad_listen_addresses(load, text):
    with pytest.raises(ConfigError) as caught:
        load(f"proxy: {{admin_listen: '{text}'}}")
    assert caught.value.key == "proxy.admin_listen"


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("admin_listen: '0.0.0.0:9000'", "admin_listen", "without admin_token_file"),
        ("admin_listen: '[::]:9000'", "admin_listen", "without admin_token_file"),
        ("tls_keyfile: a", "tls_keyfile", "needs tls_certfile"),
        ("tls_client_ca: a", "tls_client_ca", "needs tls_certfile"),
        ("worker_tls_keyfile: a", "worker_tls_keyfile", "needs worker_tls_certfile"),
        ("worker_tls_ca: a, worker_tls_verify: false", "worker_tls_ca", "contradicts worker_tls_verify"),
        ("forward_headers: [Authorization], worker_api_key_file: a", "forward_headers", "cannot be both"),
        ("forward_headers: [X-NeMo-FE-Fwd-us], nemo_timing: true", "forward_headers", "cannot be both"),
        ("forward_headers: [connection]", "forward_headers", "connection is never passed on"),
        ("forward_headers: [X-TRTLLM-Disagg-Auth]", "forward_headers", "is never passed on"),
        ("forward_headers: ['a b']", "forward_headers", "is not the name of a header"),
        ("cors_allow_origins: [example.com]", "cors_allow_origins", "is not an origin"),
        ("max_inflight_per_context_worker: some", "max_inflight_per_context_worker", "or auto"),
        ("max_inflight_per_generation_worker: -1", "max_inflight_per_generation_worker", "or auto"),
        ("rl_control: true", "rl_control", "needs admin_listen or rl_control_public"),
        ("rl_control: true, rl_control_public: true", "rl_control_public", "needs admin_token_file"),
        ("rl_control_public: true, admin_token_file: a", "rl_control_public", "needs rl_control"),
        ("rl_fanout_paths: [update_weights]", "rl_fanout_paths", "is not a path"),
        ("rl_flush_path: '/a?b'", "rl_flush_path", "is not a path"),
        ("queue_order: lifo", "queue_order", "expected one of fifo, priority"),
    ],
)
def test_mistakes(load, text, key, problem):
    with pytest.raises(ConfigError) as caught:
        load(f"proxy: {{{text}}}")
    assert caught.value.key == f"proxy.{key}"
    assert problem in caught.value.problem


@pytest.mark.parametrize("text", ["admin_listen: '127.0.0.1:0'", "admin_listen: 'unix:/run/a'"])
def test_a_private_admin_listener_needs_no_token(load, text):
    assert load(f"proxy: {{{text}}}").proxy.admin_listen is not None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("admin_token_file: a", "proxy.admin_token_file has no effect without admin_listen"),
        ("max_inflight_per_key: 2", "proxy.max_inflight_per_key has no effect without api_keys_file"),
    ],
)
def test_keys_without_effect_alone(load, text, problem):
    assert f"disagg.yaml: {problem}" in load(f"proxy: {{{text}}}").warnings


def test_limits_per_worker_from_the_environment(load):
    environ = {
        "DISAGG_PROXY_MAX_INFLIGHT_PER_CONTEXT_WORKER": "4",
        "DISAGG_PROXY_MAX_INFLIGHT_PER_GENERATION_WORKER": "auto",
    }
    proxy = load("", environ=environ).proxy
    assert (proxy.max_inflight_per_context_worker, proxy.max_inflight_per_generation_worker) == (4, "auto")
