import json

import pytest

from proxy.config.errors import ConfigError
from proxy.config.not_built import (
    NO_EFFECT,
    NOT_BUILT,
    find_not_built,
    not_built_keys,
    refusal,
    render_markdown,
)
from proxy.config.settings import ProxySettings, RouterSettings, Settings

CONFIGURABLE = [row for row in NOT_BUILT if not row.key.startswith("-")]
# A value that no row lists as harmless, of the type the key will have.
REFUSED_VALUES = {
    "disagg_coordinator_url": "http://coordinator:8332",
    "conditional_disagg_config": {"max_local_prefill_length": 0},
    "conversation_affinity_header_for_subagents": "x-parent",
    "subagent_affinity_scope": "both",
    "router.max_batch_size": 64,
    "router.custom_tokenizer": "x",
    "router.tokenizer_dir": "/models/x",
    "router.model_path": "/models/x",
    "router.track_routed_blocks": True,
    "router.load_weight": 0.25,
    "router.load_cap": 2,
}


def document(key, value):
    """A YAML file (JSON is YAML) that sets one key by its row's name."""
    scope, _, name = key.rpartition(".")
    if scope == "router":
        return json.dumps({"generation_servers": {"router": {name: value}}})
    return json.dumps({scope: {name: value}} if scope else {name: value})


def dotted(key):
    return f"generation_servers.{key}" if key.startswith("router.") else key


@pytest.mark.parametrize("row", CONFIGURABLE, ids=lambda row: f"{row.key}={row.value}")
def test_every_row_is_refused(load, row):
    value = row.value if row.value is not None else REFUSED_VALUES[row.key]
    with pytest.raises(ConfigError) as caught:
        load(document(row.key, value))
    error = caught.value
    assert (error.origin, error.key) == ("disagg.yaml", dotted(row.key))
    assert error.value == json.dumps(value)
    assert error.problem == refusal(row)
    assert row.nearest in str(error)
    assert ("not built yet" in str(error)) == (row.planned == "later")


@pytest.mark.parametrize("row", CONFIGURABLE, ids=lambda row: f"{row.key}={row.value}")
def test_harmless_values_are_accepted_silently(load, row):
    quiet = load("").warnings
    values = row.inert if row.value is not None else (None, *row.inert)
    for value in values:
        assert load(document(row.key, value)).warnings == quiet


@pytest.mark.parametrize(
    "row",
    [row for row in CONFIGURABLE if not row.key.startswith("router.")],
    ids=lambda row: f"{row.key}={row.value}",
)
def test_rows_are_refused_in_the_environment_too(load, row):
    value = row.value if row.value is not None else json.dumps(REFUSED_VALUES[row.key])
    variable = f"DISAGG_PROXY_{row.key.removeprefix('proxy.').upper()}"
    with pytest.raises(ConfigError) as caught:
        load("", environ={variable: value})
    assert caught.value.origin == f"environment variable {variable}"
    assert caught.value.problem == refusal(row)


def test_harmless_values_in_the_environment(load):
    environ = {
        "DISAGG_PROXY_WORKERS": "null",
    }
    assert load("", environ=environ).warnings == load("").warnings


@pytest.mark.parametrize("value", [True, 1.5, 0, 65, "1"])
def test_number_of_processes_is_bounded(load, value):
    with pytest.raises(ConfigError, match=r"num_workers = .*a whole number between 1 and 64"):
        load(document("num_workers", value))


def test_booleans_are_no_numbers(load):
    with pytest.raises(ConfigError, match=r"proxy\.max_inflight = false"):
        load("proxy: {max_inflight: false}")
    with pytest.raises(ConfigError, match=r"use_tokens = 0"):
        load("context_servers: {router: {use_tokens: 0}}")


@pytest.mark.parametrize("kind", ["kv_cache_aware", "KV_CACHE_AWARE"])
def test_router_type_is_reported_before_its_arguments(load, kind):
    with pytest.raises(ConfigError, match=r"context_servers\.router\.type"):
        load(f"context_servers: {{router: {{load_cap: 2, type: {kind}}}}}")


def test_rows_are_unique_and_name_nothing_that_is_built():
    names = [(row.key, row.value) for row in NOT_BUILT]
    assert len(set(names)) == len(names)
    built = {
        *Settings.__struct_fields__,
        *(f"proxy.{name}" for name in ProxySettings.__struct_fields__),
        *(f"router.{name}" for name in RouterSettings.__struct_fields__),
    }
    # A built key may have single values that are not.
    assert {row.key for row in NOT_BUILT if row.value is None}.isdisjoint(built)
    assert {row.key for row in NOT_BUILT if row.value is not None} <= built
    assert {row.key for row in NO_EFFECT}.isdisjoint(built)


def test_scopes():
    assert "disagg_coordinator_url" in not_built_keys("")
    assert not_built_keys("proxy") == set()
    assert {"type", "load_cap"} <= not_built_keys("router")
    assert not any("." in name or name.startswith("-") for name in not_built_keys(""))


def test_look_up():
    row = find_not_built("router.type", "KV_cache_aware")
    assert row is not None
    assert row.value == "kv_cache_aware"
    assert find_not_built("router.type", "load_balancing") is None
    assert find_not_built("port", 1) is None


def test_markdown_table_quotes_every_row():
    lines = render_markdown().splitlines()
    assert lines[0] == "| Key | Why it is refused | Nearest that works | Planned |"
    assert len(lines) == 2 + len(NOT_BUILT)
    assert all(line.count(" | ") == 3 for line in lines[2:])
    assert (
        "| `router.type: kv_cache_aware` | the KV cache events of the workers are not read "
        "| `prefix` | later |" in lines
    )


@pytest.mark.parametrize(
    ("text", "warns"),
    [
        ("perf_metrics_max_requests: 0", False),
        ("perf_metrics_max_requests: 100", True),
        ("return_perf_metrics: false", False),
        ("return_perf_metrics: true", True),
        ("perf_metrics_output_dir: null", False),
        ("perf_metrics_output_dir: /tmp/x", True),
    ],
)
def test_keys_without_effect_warn(load, text, warns):
    name = text.partition(":")[0]
    found = [warning for warning in load(text).warnings if warning.startswith(f"disagg.yaml: {name} = ")]
    assert len(found) == warns
    assert all("has no effect" in warning for warning in found)


@pytest.mark.parametrize(
    "text", ["perf_metrics_max_requests: many", "return_perf_metrics: 1", "perf_metrics_output_dir: [a]"]
)
def test_keys_without_effect_are_still_checked(load, text):
    with pytest.raises(ConfigError, match="expected"):
        load(text)
