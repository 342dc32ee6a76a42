"""Every key and option of `trtllm-serve disaggregated` is in the README's tables, and behaves as they say."""

import argparse
import re
from collections.abc import Callable
from typing import Any

import pytest
from running_proxy import running_proxy
from test_deploy_readme import rows, section

from proxy.config.errors import ConfigError
from proxy.config.load import load_settings
from proxy.config.options import add_serve_options, overrides_from
from proxy.config.settings import RouterSettings, Settings
from proxy.config.sources import UPSTREAM_VARIABLES

PAGE = section("Migrate from trtllm-serve disaggregated")
VERDICTS = ("same", "different", "no effect", "refused")

# Of trtllm-serve in TensorRT-LLM 1.3.0rc24 and of its main branch in autumn 2026: key -> a value that asks for
# something.
TOP: dict[str, Any] = {
    "hostname": "0.0.0.0",
    "port": 9000,
    "num_workers": 4,
    "disagg_coordinator_url": "http://coordinator:7999",
    "context_servers": {"num_instances": 1, "urls": ["a:1"]},
    "generation_servers": {"num_instances": 1, "urls": ["a:2"]},
    "max_retries": 3,
    "schedule_style": "context_first",
    "gen_tokids_ctxbytes": True,
    "gen_strip_message_history": True,
    "allow_request_chat_template": True,
    "node_id": 3,
    "server_keep_alive_timeout": 3600,
    "internal_request_auth_key": "secret",
    "otlp_config": {"otlp_traces_endpoint": "http://collector:4318"},
    "conditional_disagg_config": {"max_local_prefill_length": 128},
    "disagg_cluster": {"cluster_uri": "http://host:8000"},
    "conversation_affinity_header_for_subagents": "x-parent",
    "subagent_affinity_scope": "both",
    "perf_metrics_max_requests": 100,
    "return_perf_metrics": True,
    "perf_metrics_output_dir": "/metrics",
    "model": "some-model",
    "backend": "pytorch",
}
SECTION: dict[str, Any] = {
    "urls": ["a:1", "b:1"],
    "num_instances": 2,
    "tensor_parallel_size": 4,
    "max_batch_size": 64,
    "router.type: round_robin": {},
    "router.type: load_balancing": {},
    "router.type: conversation": {},
    "router.type: kv_cache_aware": {},
    "router.use_tokens": True,
    "router.match_threshold": 0.5,
    "router.tokens_per_block": 64,
    "router.use_token_ids": True,
    "router.hash_skip_count": 3,
    "router.max_sessions": 5,
    "router.use_harmony": True,
    "router.max_batch_size": 32,
    "router.custom_tokenizer": "some",
    "router.tokenizer_dir": "/tokenizer",
    "router.model_path": "/model",
    "router.track_routed_blocks": False,
    "router.load_weight": 0.5,
    "router.load_cap": 0.9,
}
OPTIONS: dict[str, list[str]] = {
    "-c": ["FILE"],
    "--config": ["FILE"],
    "--config_file": ["FILE"],
    "-m": ["FILE"],
    "--metadata_server_config_file": ["FILE"],
    "-t": ["10"],
    "--server_start_timeout": ["10"],
    "-r": ["10"],
    "--request_timeout": ["10"],
    "-l": ["debug"],
    "--log_level": ["debug"],
    "--metrics-log-interval": ["5"],
}
VARIABLES = (
    "TRTLLM_DISAGG_BENCHMARK_GEN_ONLY",
    "TRTLLM_DISAGG_NO_RETRY",
    "TRTLLM_DISAGG_SERVER_DISABLE_GC",
    "TRTLLM_SERVE_ENABLE_MSGSPEC",
    "TRTLLM_DISAGG_WORKER_PROCESS_ID",
    "TRTLLM_DISAGG_COORDINATOR_RESERVATION_TIMEOUT",
    "TRTLLM_KVCACHE_AWARE_ROUTER_HASH_TOKENS_PER_BLOCK",
    "TRTLLM_RENDER_LEGACY",
    "PROMETHEUS_MULTIPROC_DIR",
)
# Rows in which a default of upstream is written otherwise than as a value.
SPOKEN = {"of the machine's address", "the default", ""}

Write = Callable[..., str]


def table(heading: str) -> dict[str, list[str]]:
    """Name -> the other cells of its row."""
    found = re.search(rf"^### {heading}\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return {name: cells for first, *cells in rows(found[1]) for name in re.findall(r"`([^`]+)`", first)}


def verdict(cells: list[str]) -> str:
    match = re.match(r"\*\*([a-z ]+)\*\*", cells[-1])
    assert match is not None, cells
    assert match[1] in VERDICTS, cells
    return match[1]


TOP_ROWS, SECTION_ROWS = table("Top level"), table("A server section")
OPTION_ROWS, VARIABLE_ROWS = table("Command line"), table("Environment")


def test_nothing_is_left_out_and_nothing_is_made_up() -> None:
    assert set(TOP_ROWS) == set(TOP)
    assert set(SECTION_ROWS) == set(SECTION)
    assert set(OPTION_ROWS) == set(OPTIONS)
    assert set(VARIABLE_ROWS) - {"max_retries: 0"} == set(VARIABLES)


def behaviour(write: Write, document: dict[str, Any], key: str) -> str:
    """What becomes of a document that holds the key: `refused`, `no effect` (a warning names it) or `accepted`."""
    try:
        settings = load_settings(write(document), overrides={}, environ={}, container_marks=())
    except ConfigError as error:
        return "refused" if key in str(error) else f"fails: {error}"
    ignored = any(key in warning and "no effect" in warning for warning in settings.warnings)
    return "no effect" if ignored else "accepted"


SAID = {"same": "accepted", "different": "accepted", "no effect": "no effect", "refused": "refused"}


@pytest.mark.parametrize("key", TOP)
def test_top_level(write_config: Write, key: str) -> None:
    assert behaviour(write_config, {key: TOP[key]}, key) == SAID[verdict(TOP_ROWS[key])], (
        "deploy/README.md: Migrate"
    )


@pytest.mark.parametrize("key", SECTION)
def test_section(write_config: Write, key: str) -> None:
    name = key.removeprefix("router.")
    kind, colon, value = name.partition(": ")
    if colon:
        part: dict[str, Any] = {"router": {kind: value}}
    elif key.startswith("router."):
        kinds = {"use_tokens": "load_balancing"}
        part = {"router": {"type": kinds.get(name, "conversation"), name: SECTION[key]}}
    else:
        part = {"urls": ["a:1", "b:1"], key: SECTION[key]}
    said = SAID[verdict(SECTION_ROWS[key])]
    assert behaviour(write_config, {"context_servers": part}, kind) == said, "deploy/README.md: Migrate"


@pytest.mark.parametrize(
    ("rows_of", "struct", "prefix"), [(TOP_ROWS, Settings, ""), (SECTION_ROWS, RouterSettings, "router.")]
)
def test_defaults(rows_of: dict[str, list[str]], struct: type, prefix: str) -> None:
    ours = struct()
    for key, (default, _) in rows_of.items():
        name = key.removeprefix(prefix)
        if default in SPOKEN or not hasattr(ours, name):
            continue
        same = str(getattr(ours, name)).lower() == default
        assert same or verdict(rows_of[key]) == "different", key
        if not same and getattr(ours, name) is not None:
            assert str(getattr(ours, name)) in rows_of[key][-1], key


@pytest.mark.parametrize("option", OPTIONS)
def test_options(option: str) -> None:
    parser = argparse.ArgumentParser()
    add_serve_options(parser)
    arguments = parser.parse_args([option, *OPTIONS[option]])
    said = verdict(OPTION_ROWS[option])
    if said == "refused":
        with pytest.raises(ConfigError):
            overrides_from(arguments)
        return
    overrides = overrides_from(arguments)
    warned = any(option in sentence for sentence in overrides.pop("warnings", ()))
    assert warned == ("warning" in OPTION_ROWS[option][-1] or said == "no effect")
    # `-c` names the file and sets nothing.
    assert bool(overrides) == (said != "no effect" and arguments.config is None)


def test_the_request_timeout_sets_what_the_table_says() -> None:
    parser = argparse.ArgumentParser()
    add_serve_options(parser)
    overrides = overrides_from(parser.parse_args(["-r", "10"]))
    assert set(re.findall(r"`(\w+)`", OPTION_ROWS["-r"][-1])) == set(overrides)


@pytest.mark.parametrize("name", VARIABLES)
def test_variables(name: str) -> None:
    assert (name in UPSTREAM_VARIABLES) == (verdict(VARIABLE_ROWS[name]) == "same")


def test_generation_first_is_what_the_table_says(write_config: Write) -> None:
    refused = behaviour(write_config, {"schedule_style": "generation_first"}, "schedule_style") == "refused"
    assert refused == ("`generation_first` is refused" in TOP_ROWS["schedule_style"][-1])


async def test_routes_that_are_gone() -> None:
    named = re.search(r"^\* (`/docs`.*) do not exist", PAGE, re.MULTILINE)
    assert named is not None
    async with running_proxy() as proxy:
        for path in re.findall(r"`(/[\w.]+)`", named[1]):
            assert (await proxy.client.get(path)).status_code == 404
