"""Configurations in which much is set, shared by the tests of this folder."""

EXAMPLE = """
hostname: 0.0.0.0
port: 8000
schedule_style: context_first
max_retries: 1
gen_tokids_ctxbytes: true
gen_strip_message_history: true
server_keep_alive_timeout: 3600
context_servers:
  num_instances: 2
  urls: ["ctx0:8001", "ctx1:8001"]
  router: {type: round_robin}
generation_servers:
  num_instances: 1
  urls: ["gen0:8002"]
  router: {type: load_balancing}
"""

PROXY_YAML = {
    "max_body_bytes": "64 MiB",
    "max_header_bytes": 32768,
    "max_connections_per_worker": 100,
    "max_inflight": 1000,
    "max_inflight_per_key": 10,
    "max_inflight_per_context_worker": 8,
    "max_inflight_per_generation_worker": "auto",
    "max_queued": 20,
    "max_queued_bytes": "2 MiB",
    "queue_order": "priority",
    "timeout_queue": 0.5,
    "pause_mode": "refuse",
    "sse_keepalive_seconds": 15,
    "api_keys_file": "/run/keys",
    "admin_listen": "0.0.0.0:9000",
    "admin_token_file": "/run/token",
    "rl_control": True,
    "rl_control_public": True,
    "rl_fanout_paths": ["/update_weights"],
    "rl_fanout_timeout": 60,
    "rl_flush_path": "/_control/kv_cache/truncate",
    "worker_api_key_file": "/run/worker-key",
    "forward_headers": ["X-Tenant"],
    "cors_allow_origins": ["https://Example.com:8443"],
    "tls_certfile": "/run/tls.crt",
    "tls_keyfile": "/run/tls.key",
    "tls_client_ca": "/run/clients.crt",
    "worker_tls_ca": "/run/workers.crt",
    "worker_tls_certfile": "/run/proxy.crt",
    "worker_tls_keyfile": "/run/proxy.key",
    "worker_tls_verify": True,
    "timeout_connect": 1,
    "timeout_context": 2,
    "timeout_first_byte": 3,
    "timeout_idle": 4.5,
    "timeout_total": 600,
    "fallback_aggregated": "context_down",
    "benchmark_gen_only": True,
    "retry_budget": 0.5,
    "on_disconnect_after_prefill": "drop",
    "header_timeout": 0,
    "client_stall_timeout": 6,
    "server_start_timeout": 7,
    "drain_grace": 8,
    "drain_timeout": 9,
    "probe_interval": 10,
    "probe_timeout": 11,
    "eject_after": 5,
    "eject_seconds": 1.5,
    "fail_open": False,
    "slow_start_seconds": 0,
    "canary_interval": 30,
    "workers": [
        {"url": "c:1", "role": "context", "model": None, "labels": {"domain": "rack1", "zone": "a"}},
        {"url": "g:1", "role": "generation", "model": "llama", "labels": {}},
    ],
    "discovery": [
        {"type": "file", "name": "file", "path": "/run/workers.yaml", "interval": 2.0},
        {"type": "dns", "role": "context", "host": "ctx", "port": 8001, "labels": {"zone": "a"}},
        {"type": "kubernetes", "role": "generation", "service": "gen", "port": "http", "domain": "zone"},
    ],
    "minimal_instances": {"context_servers": 2, "generation_servers": 3},
    "metadata_server": {
        "server_type": "etcd",
        "hostname": "etcd",
        "port": 2380,
        "health_check_timeout": 1.5,
        "refresh_interval": 2.5,
    },
    "cluster_storage_key_file": "/run/storage-key",
    "etcd_user": "root",
    "etcd_password_file": "/run/etcd-password",
    "etcd_tls_ca": "/run/etcd.crt",
    "etcd_tls_certfile": "/run/etcd-proxy.crt",
    "etcd_tls_keyfile": "/run/etcd-proxy.key",
    "topology_strict": True,
    "accept_prompt_token_ids": True,
    "worker_version": "new",
    "worker_dialect": "nemo_rl",
    "unknown_fields": "reject",
    "field_rules": [
        {"field": "top_k", "action": "default", "value": 20},
        {"field": "foo", "action": "rename", "to": "seed"},
    ],
    "harmony_models": ["gpt-oss-120b"],
    "developer_as_system": ["llama"],
    "tokenizer": "/models/llama",
    "frontend_tokenisation": False,
    "tokenisation_shadow": 0.5,
    "tokenisation_max_mismatch": 0.25,
    "tokenisation_threads": 3,
    "root_path": "/llm",
    "model_aliases": {"gpt-4": "llama"},
    "pass_through": [{"path": "/v1/embeddings", "role": "context", "methods": ["POST", "GET"]}],
    "stream_coalesce_ms": 5,
    "several_choices": "refuse",
    "max_choices": 4,
    "timing_headers": False,
    "nemo_timing": True,
    "request_log_dir": "/var/log/requests",
    "request_log_max_bytes": "1 MiB",
    "request_log_max_files": 3,
    "access_log": False,
    "log_level": "debug",
    "log_format": "json",
}
