import pytest
import yaml

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.config.errors import ConfigError
from proxy.config.settings import RouterSettings, ServerSection

TWO = "context_servers: {urls: ['a:1']}\ngeneration_servers: {urls: ['b:1']}\n"


def addresses(*texts: str) -> tuple[WorkerAddress, ...]:
    return tuple(map(parse_worker_address, texts))


def test_passwords_in_urls_are_not_shown(load):
    with pytest.raises(ConfigError) as caught:
        load("context_servers: {urls: ['http://me:hunter2@a:1']}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("kind", ["round_robin", "Round_Robin", "LOAD_BALANCING"])
def test_router_types_in_any_case(load, kind):
    assert load(f"context_servers: {{router: {{type: {kind}}}}}").context_servers.router.type == kind.lower()


@pytest.mark.parametrize("router", ["null", "{}", "{type: null}", "{use_tokens: false}"])
def test_router_defaults(load, router):
    assert load(f"context_servers: {{router: {router}}}").context_servers.router == RouterSettings()


def test_num_instances_follows_urls(load):
    assert load(TWO).context_servers.num_instances == 1
    assert load("context_servers: {num_instances: 0}").context_servers == ServerSection()
    assert load("context_servers: {num_instances: null, urls: [a:1]}").context_servers.num_instances == 1
    assert load("context_servers: {urls: null}").context_servers.urls == ()


def test_one_worker_may_serve_both_roles(load):
    settings = load("context_servers: {urls: [a:1]}\ngeneration_servers: {urls: [a:1]}")
    assert settings.context_servers.urls == settings.generation_servers.urls == addresses("a:1")


def test_every_form_of_url(load):
    urls = ["a:1", "http://b:1", "https://c:443", "[::1]:8001", "unix:/run/d.sock"]
    settings = load(yaml.safe_dump({"context_servers": {"urls": urls}}))
    assert settings.context_servers.urls == addresses(*urls)


# Keys of the engine's configuration that stand in files of trtllm-serve, close as some are to ours.
# fmt: off
ENGINE_KEYS = [
    "model", "tokenizer", "tokenizer_mode", "skip_tokenizer_init", "trust_remote_code",
    "tensor_parallel_size", "dtype", "revision", "tokenizer_revision", "pipeline_parallel_size",
    "context_parallel_size", "gpus_per_node", "moe_cluster_parallel_size", "moe_tensor_parallel_size",
    "moe_expert_parallel_size", "enable_attention_dp", "pp_partition", "cp_config", "load_format",
    "enable_lora", "lora_config", "kv_cache_config", "enable_chunked_prefill", "guided_decoding_backend",
    "iter_stats_max_iterations", "peft_cache_config", "scheduler_config", "cache_transceiver_config",
    "sparse_attention_config", "speculative_config", "max_batch_size", "max_input_len", "max_seq_len",
    "max_beam_width", "max_num_tokens", "gather_generation_logits", "num_postprocess_workers",
    "postprocess_tokenizer_dir", "reasoning_parser", "backend", "otlp_traces_endpoint", "orchestrator_type",
    "env_overrides", "cuda_graph_config", "disable_overlap_scheduler", "moe_config", "attn_backend",
    "sampler_type", "enable_iter_perf_stats", "print_iter_log", "batch_wait_timeout_ms",
    "torch_compile_config", "stream_interval", "mm_encoder_only", "allreduce_strategy", "checkpoint_format",
    "kv_connector_config", "num_serve_frontends", "custom_tokenizer", "chat_template", "server_role",
    "free_gpu_memory_fraction",
]
# fmt: on


@pytest.mark.parametrize("name", ENGINE_KEYS)
def test_engine_keys_are_accepted_everywhere(load, name):
    value = {"x": 1}
    quiet = load("").warnings
    top = load(yaml.safe_dump({name: value}))
    assert top.inherited == {name: value}
    section = load(yaml.safe_dump({"context_servers": {name: value}}))
    assert section.context_servers.inherited == {name: value}
    assert section.inherited == {}
    assert top.warnings == section.warnings == quiet


def test_upstream_keys_may_agree_on_both_levels(load):
    settings = load("model: a\ncontext_servers: {model: a, max_batch_size: 8}")
    assert settings.inherited == {"model": "a"}
    assert settings.context_servers.inherited == {"model": "a", "max_batch_size": 8}
    assert settings.generation_servers.inherited == {}


def test_section_keys_at_the_top_level_reach_both_sections(load):
    settings = load("router: {type: load_balancing}\nurls: [a:1]\ngeneration_servers: {num_instances: 1}")
    assert settings.context_servers.router.type == settings.generation_servers.router.type == "load_balancing"
    assert settings.context_servers.urls == settings.generation_servers.urls == addresses("a:1")
    assert settings.inherited == {}
    with pytest.raises(ConfigError, match=r"context_servers\.router = .*contradicts the top-level key"):
        load("router: {type: load_balancing}\ncontext_servers: {router: {type: round_robin}}")


def test_top_level_keys_in_a_section_warn(load):
    warnings = load(
        "context_servers: {urls: [a:1], max_retries: 3}\ngeneration_servers: {urls: [b:1]}"
    ).warnings
    assert warnings == (
        "disagg.yaml: context_servers.max_retries is handed to the workers only; "
        'for the proxy write "max_retries" at the top level',
    )
