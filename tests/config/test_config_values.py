from typing import Any

import msgspec
import pytest

from proxy.config.errors import ConfigError
from proxy.config.settings import ProxySettings, Settings
from proxy.config.values import Entry, convert, parse_byte_size, parse_log_level, parse_root_path, show

TYPES: dict[str, Any] = {
    field.name: field.type for struct in (Settings, ProxySettings) for field in msgspec.structs.fields(struct)
}
MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64 MiB", 64 * MIB),
        ("64MiB", 64 * MIB),
        ("64mib", 64 * MIB),
        ("64Mi", 64 * MIB),
        ("1 GiB", 1024 * MIB),
        ("2 KB", 2000),
        ("2k", 2000),
        ("3MB", 3_000_000),
        ("1.5 GB", 1_500_000_000),
        ("0.5 KiB", 512),
        (" 7 B ", 7),
    ],
)
def test_byte_sizes(text, size):
    assert parse_byte_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MiB", "-1", "64 M iB", "1e6", "64 MM", "0.3 KiB", "1.5", "64 MiB!", "½ MiB"]
)
def test_bad_byte_sizes(text):
    with pytest.raises(ValueError, match=r"^expected a "):
        parse_byte_size(text)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("info", "info"),
        ("INFO", "info"),
        ("verbose", "debug"),
        ("internal_error", "critical"),
        ("Warn", "warning"),
    ],
)
def test_log_levels(text, level):
    assert parse_log_level(text) == level


def test_bad_log_level():
    with pytest.raises(ValueError, match="expected one of critical, internal_error"):
        parse_log_level("loud")


@pytest.mark.parametrize(("text", "path"), [("", ""), ("/", ""), ("/a", "/a"), ("/a/b/", "/a/b")])
def test_root_paths(text, path):
    assert parse_root_path(text) == path


@pytest.mark.parametrize("text", ["a", "a/", "/a//b", "/a b", "/ä", "/a?b", "/a#b"])
def test_bad_root_paths(text):
    with pytest.raises(ValueError, match="path"):
        parse_root_path(text)


STRICT = [
    # key, value, result
    ("port", 0, 0),
    ("port", 65535, 65535),
    ("hostname", "::", "::"),
    ("node_id", None, None),
    ("node_id", 255, 255),
    ("gen_tokids_ctxbytes", True, True),
    ("internal_request_auth_key", "k", "k"),
    ("timeout_idle", 3, 3.0),
    ("timeout_idle", 0, 0.0),
    ("timeout_idle", 0.5, 0.5),
    ("max_body_bytes", 1, 1),
    ("max_body_bytes", "1 MiB", MIB),
    ("harmony_models", [], ()),
    ("harmony_models", ["gpt-oss-120b"], ("gpt-oss-120b",)),
    ("model_aliases", {"gpt-4": "llama"}, {"gpt-4": "llama"}),
    ("worker_version", "OLD", "old"),
    ("log_level", "TRACE", "debug"),
    ("log_format", "JSON", "json"),
    ("root_path", "/a/", "/a"),
    ("max_inflight_per_context_worker", "AUTO", "auto"),
    ("max_inflight_per_context_worker", 3, 3),
    ("max_inflight_per_generation_worker", "7", 7),
    ("max_queued_bytes", "1 MiB", MIB),
    ("max_queued_bytes", 0, 0),
    ("admin_listen", "unix:/run/admin.sock", "unix:/run/admin.sock"),
    ("admin_listen", None, None),
    ("forward_headers", ["X-Tenant", "cookie"], ("x-tenant", "cookie")),
    ("cors_allow_origins", ["*", "http://[::1]:3000"], ("*", "http://[::1]:3000")),
    ("stream_coalesce_ms", 1.5, 1.5),
]


@pytest.mark.parametrize(("key", "value", "result"), STRICT)
def test_strict_values(key, value, result):
    converted = convert(key, Entry(value, "file"), TYPES[key])
    assert converted == result
    assert type(converted) is type(result)


WRONG = [
    ("port", "8000", "a whole number between 0 and 65535"),
    ("port", -1, "a whole number between 0 and 65535"),
    ("port", 65536, "a whole number between 0 and 65535"),
    ("port", True, "a whole number between 0 and 65535"),
    ("port", 8000.5, "a whole number between 0 and 65535"),
    ("port", None, "a whole number between 0 and 65535"),
    ("port", [8000], "a whole number between 0 and 65535"),
    ("hostname", 1.5, "a text that is not empty"),
    ("hostname", "", "a text that is not empty"),
    ("max_retries", -1, "a whole number of at least 0"),
    ("node_id", 256, "a whole number between 0 and 255 or null"),
    ("node_id", -1, "a whole number between 0 and 255 or null"),
    ("schedule_style", "sideways", "context_first"),
    ("allow_request_chat_template", 1, "true or false"),
    ("allow_request_chat_template", "true", "true or false"),
    ("gen_tokids_ctxbytes", "yes", "true or false or null"),
    ("gen_strip_message_history", None, "true or false"),
    ("server_keep_alive_timeout", -5, "a whole number of at least 0"),
    ("internal_request_auth_key", "", "a text that is not empty or null"),
    ("max_body_bytes", 0, "a whole number of at least 1"),
    ("max_body_bytes", "lots", 'a number of bytes or a size such as "64 MiB"'),
    ("max_body_bytes", 1.5, "a whole number of at least 1"),
    ("max_header_bytes", "0", "a whole number of at least 1"),
    ("max_connections_per_worker", -1, "a whole number of at least 0"),
    ("timeout_connect", -0.1, "a number of at least 0"),
    ("timeout_context", "180", "a number of at least 0"),
    ("timeout_first_byte", True, "a number of at least 0"),
    ("timeout_idle", float("nan"), "a number of at least 0"),
    ("timeout_idle", float("inf"), "a number of at least 0"),
    ("probe_interval", 0, "a number greater than 0"),
    ("probe_timeout", -1, "a number greater than 0"),
    ("worker_version", "1.3.0", "one of auto, jul, new, old"),
    ("worker_dialect", "vllm", "one of nemo_rl, passthrough, trtllm"),
    ("unknown_fields", "keep", "one of drop, pass, reject"),
    ("harmony_models", "gpt-oss", "a list of texts"),
    ("harmony_models", [1], "a list of texts"),
    ("harmony_models", [""], "a list of texts"),
    ("model_aliases", ["a"], "a mapping of texts to texts"),
    ("model_aliases", {"a": 1}, "a mapping of texts to texts"),
    ("root_path", 5, "a text"),
    ("access_log", "off", "true or false"),
    ("log_level", 10, "one of critical, debug, error, info, warning"),
    ("log_format", "xml", "one of json, text"),
]


@pytest.mark.parametrize(("key", "value", "expected"), WRONG)
def test_wrong_values(key, value, expected):
    with pytest.raises(ConfigError) as caught:
        convert(f"proxy.{key}", Entry(value, "disagg.yaml"), TYPES[key])
    error = caught.value
    assert error.problem == f"expected {expected}"
    assert (error.origin, error.key, error.value) == ("disagg.yaml", f"proxy.{key}", show(key, value))
    assert str(error) == f"disagg.yaml: proxy.{key} = {show(key, value)}: expected {expected}"
    assert error.exit_code == 2


TEXT = [
    ("port", "8001", 8001),
    ("port", " 8001 ", 8001),
    ("hostname", "0.0.0.0", "0.0.0.0"),
    ("hostname", "1", "1"),
    ("node_id", "7", 7),
    ("node_id", "null", None),
    ("access_log", "0", False),
    ("access_log", "1", True),
    ("access_log", "false", False),
    ("access_log", "on", True),
    ("timeout_idle", "2.5", 2.5),
    ("timeout_idle", "3", 3.0),
    ("internal_request_auth_key", "12345", "12345"),
    ("internal_request_auth_key", "{x", "{x"),
    ("max_body_bytes", "1024", 1024),
    ("max_body_bytes", "1 MiB", MIB),
    ("harmony_models", "[a, b]", ("a", "b")),
    ("harmony_models", "a, b", ("a", "b")),
    ("harmony_models", "a", ("a",)),
    ("harmony_models", "[]", ()),
    ("model_aliases", "{gpt-4: llama}", {"gpt-4": "llama"}),
    ("worker_version", "New", "new"),
    ("log_level", "verbose", "debug"),
]


@pytest.mark.parametrize(("key", "text", "result"), TEXT)
def test_text_values(key, text, result):
    converted = convert(key, Entry(text, "environment variable X", text=True), TYPES[key])
    assert converted == result
    assert type(converted) is type(result)


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("port", "http", "expected a whole number between 0 and 65535"),
        ("port", "8000.5", "expected a whole number between 0 and 65535"),
        ("access_log", "maybe", "expected true or false"),
        ("access_log", "2", "expected true or false"),
        ("timeout_idle", "inf", "expected a number of at least 0"),
        ("timeout_idle", ".nan", "expected a number of at least 0"),
        ("model_aliases", "a=b", "expected a mapping of texts to texts"),
        ("harmony_models", "a,,b", "expected a list of texts"),
        ("model_aliases", "{a: b", "line 1, column 6"),
    ],
)
def test_wrong_text_values(key, text, problem):
    with pytest.raises(ConfigError) as caught:
        convert(key, Entry(text, "environment variable X", text=True), TYPES[key])
    assert str(caught.value).startswith("environment variable X: ")
    assert caught.value.problem.startswith(problem)


def test_shown_values():
    assert show("port", "x") == '"x"'
    assert show("a", None) == "null"
    assert show("a", {"ä": [1, True]}) == '{"ä": [1, true]}'
    assert show("internal_request_auth_key", 5) == '"***"'
    assert show("internal_request_auth_key", None) == "null"
    assert len(show("a", "x" * 500)) == 80


def test_secret_values_are_masked_in_errors():
    with pytest.raises(ConfigError) as caught:
        convert("internal_request_auth_key", Entry(4711, "f"), TYPES["internal_request_auth_key"])
    assert "4711" not in str(caught.value)
