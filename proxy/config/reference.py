"""The table of keys in this folder's README: written by `python -m proxy.config.reference`, checked by a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from proxy.config.disagg_cluster import DisaggCluster
from proxy.config.discovery.dns import DnsEntry
from proxy.config.discovery.file import FileEntry
from proxy.config.discovery.kubernetes import KubernetesEntry
from proxy.config.metadata_server import MetadataServer
from proxy.config.not_built import NO_EFFECT, render_markdown
from proxy.config.settings import ProxySettings, RouterSettings, Settings

_TOP = {
    "hostname": "address to listen on",
    "port": "port to listen on; 0 = any free one",
    "num_workers": "processes that serve the port, one core each (`--workers`)",
    "context_servers": "`urls` (`num_instances` may be left out) and `router` of the context workers",
    "generation_servers": "the same for the generation workers",
    "max_retries": "extra attempts per leg",
    "schedule_style": "`context_first`",
    "gen_tokids_ctxbytes": "relay token ids in base64; unset = if the workers know it",
    "gen_strip_message_history": "cut `messages` of the generation leg to the last one where that is safe",
    "allow_request_chat_template": "take `chat_template` from clients",
    "otlp_config": "`otlp_traces_endpoint`: url to which spans are sent, OTLP over HTTP; needs the extra `otel`",
    "disagg_cluster": "the storage in which the workers register, see below; the sections' urls are not used then",
    "node_id": "0 to 255, tells proxies apart in request ids; `auto`, and unset with an etcd = a free one, held there "
    "by a lease; else unset = random, and logged",
    "server_keep_alive_timeout": "seconds that an idle client connection stays open",
    "internal_request_auth_key": "signs hand-offs for workers that ask for it",
}

_ROUTER = {
    "type": "`round_robin`, `random`, `load_balancing` (fewest legs in flight), `two_choices`, `conversation` (keeps "
    "conversations together, bounded by load), `prefix` (the same by the first two messages), `consistent_hash`",
    "use_tokens": "of `load_balancing`: weigh by prompt size",
    "match_threshold": "of `conversation`; accepted, without effect",
    "tokens_per_block": "of `conversation`; accepted, without effect",
    "use_token_ids": "of `conversation`; accepted, without effect",
    "hash_skip_count": "of `conversation`; accepted, without effect",
    "max_sessions": "of `conversation`; accepted, without effect",
    "use_harmony": "of `conversation`; accepted, without effect",
}

_PROXY = {
    "max_body_bytes": "larger bodies are answered with 413; `64 MiB` is understood",
    "max_header_bytes": "larger header sections are answered with 431",
    "max_connections_per_worker": "0 = no limit",
    "max_inflight": "requests at once, in all processes together; 0 = no limit",
    "max_inflight_per_key": "the same for each API key; with `n` each choice counts",
    "max_inflight_per_context_worker": "held back before prefill; `auto` = the worker's `max_batch_size`; 0 = no limit",
    "max_inflight_per_generation_worker": "likewise",
    "max_queued": "requests that may wait; 0 = none",
    "max_queued_bytes": "their bodies together",
    "queue_order": "`fifo` or `priority` (member `priority` or header `x-disagg-proxy-priority`, 0 to 1, higher first)",
    "timeout_queue": "seconds; 503 afterwards",
    "pause_mode": "while paused, new requests `queue` or are `refuse`d",
    "timeout_connect": "seconds, 0 = no limit; as are all time-outs",
    "timeout_context": "for the context leg (`-r` sets this and the next two)",
    "timeout_first_byte": "from the generation leg's sending to the head of its answer; of an answer that is not "
    "streamed, to its end",
    "timeout_idle": "between two pieces of a stream, while the client takes them",
    "timeout_total": "for the whole request; a client may shorten it by `x-request-timeout-ms`",
    "retry_budget": "legs that may be sent again, as a share of the recent requests",
    "fallback_aggregated": "`context_down`: generation workers prefill when no context worker is left",
    "benchmark_gen_only": "no context legs at all (also `TRTLLM_DISAGG_BENCHMARK_GEN_ONLY=1`)",
    "on_disconnect_after_prefill": "`drain`: take the hand-off and end the leg at its first byte, or `drop`",
    "header_timeout": "for a whole request head",
    "client_stall_timeout": "for a client that sends or takes nothing",
    "sse_keepalive_seconds": "comments into a stream that has not begun; commits the status 200",
    "server_start_timeout": "after it an error is logged; the proxy goes on trying (`-t`)",
    "drain_grace": "after SIGTERM, new requests are still accepted for this time",
    "drain_timeout": "then running ones may finish within this one",
    "probe_interval": "between two probes of `/health`",
    "probe_timeout": "for one probe",
    "eject_after": "failures in a row, of probes or legs",
    "eject_seconds": "doubling up to 60",
    "fail_open": "use ejected workers when there are no others",
    "slow_start_seconds": "a worker that comes back gets less than its share at first",
    "canary_interval": "a tiny request through every worker; 0 = off",
    "workers": "list of `{url, role, model, labels}`, instead of or beside the sections' urls; the label `domain` (on "
    "GB200 and GB300 the node's `nvidia.com/gpu.clique`) keeps both legs of a request close",
    "discovery": "list of sources that tell workers: `{type, name, ...}`, see below; beside the workers listed here",
    "minimal_instances": "`{context_servers, generation_servers}`: `/health` says 503 while fewer are ready; unset = "
    "one of each role",
    "metadata_server": "`-m`: a file, or its mapping; see below",
    "cluster_storage_key_file": "bearer token for those who register in the storage that the proxy serves",
    "etcd_user": "for the etcd of `disagg_cluster` or `metadata_server`",
    "etcd_password_file": "its password, one line",
    "etcd_tls_ca": "authority of its certificates; TLS is spoken with this or `etcd_tls_certfile`",
    "etcd_tls_certfile": "client certificate for it",
    "etcd_tls_keyfile": "its key",
    "topology_strict": "never cross the label `domain` between the legs",
    "accept_prompt_token_ids": "take `prompt_token_ids` from clients",
    "worker_version": "`auto` (asks the workers), `old`, `jul` or `new`",
    "worker_dialect": "`trtllm`, `nemo_rl` or `passthrough`",
    "unknown_fields": "`drop`, `reject` or `pass`",
    "field_rules": "own rules: list of `{field, action, ...}`; `disagg-proxy fields` shows all rules in force",
    "harmony_models": "models whose workers tokenise by themselves",
    "developer_as_system": "models whose chat templates know no role `developer`",
    "tokenizer": "directory of the model's `tokenizer.json`, `tokenizer_config.json` and chat template, for "
    "`/tokenize`, `/detokenize` and `frontend_tokenisation`; needs the extra `tokenize`",
    "frontend_tokenisation": "render and tokenise prompts here and send the ids to the context workers",
    "tokenisation_shadow": "share of the prompts that go as text all the same, so that the workers' ids are compared "
    "with the proxy's; the first 8 of each process always do",
    "tokenisation_max_mismatch": "share of differences among the latest 1,000 comparisons (fewer than 100 count as "
    "100) above which the workers tokenise until the next start; each is logged, with its text at `log_level: debug` "
    "only",
    "tokenisation_threads": "prompts that are tokenised at once",
    "root_path": "prefix under which the proxy is reached",
    "model_aliases": "alias: served model",
    "pass_through": "further routes of the workers: list of `{path, role, methods}`, each served in one leg by a "
    "worker of the role (`generation`), for these methods (`[POST]`)",
    "several_choices": "`n` and `best_of` above 1: `fan_out` sends as many requests for one choice each and merges "
    "their answers, `pass` leaves them and beam search to workers that can do it from one hand-off, `refuse` is a 400",
    "max_choices": "most choices that one request may have made by `fan_out`",
    "stream_coalesce_ms": "pieces of a stream may wait this long for each other while the process is busy",
    "api_keys_file": "one `name:key` or `name:sha256=<hex>` a line; read again when it changes",
    "admin_listen": "`host:port` or `unix:/path` of the admin routes",
    "admin_token_file": "their bearer token",
    "rl_control": "routes for trainers beside those of `admin_listen`: workers, pause, abort, calls to all workers",
    "rl_control_public": "the same on the public port; needs `admin_token_file`",
    "rl_fanout_paths": "paths of the workers that may be called on all of them at once; by default `/release_memory`, "
    "`/resume_memory`, `/update_weights`, `/memory_status`, `/server_info`",
    "rl_fanout_timeout": "for such a call",
    "rl_flush_path": "path of the workers that empties their KV caches, for `/flush_cache`; unset = 501",
    "worker_api_key_file": "bearer token for the workers",
    "forward_headers": "names of client headers that go to the workers",
    "cors_allow_origins": "origins of browsers",
    "tls_certfile": "serve TLS",
    "tls_keyfile": "its key",
    "tls_client_ca": "require client certificates of this authority",
    "worker_tls_ca": "authority of the workers' certificates; unset = the system's",
    "worker_tls_certfile": "client certificate for the workers",
    "worker_tls_keyfile": "its key",
    "worker_tls_verify": "check the workers' certificates",
    "timing_headers": "answers tell where their time went: `x-disagg-proxy-overhead-us`, `server-timing`",
    "nemo_timing": "answers carry times that NeMo-RL reads: `nemo_fe_recv_ts_us` and `nemo_fe_fwd_ts_us`, which the "
    "workers get as headers `x-nemo-fe-recv-us` and `x-nemo-fe-fwd-us`, and the context worker's `nemo_ctx_*`",
    "request_log_dir": "directory for files with one JSON object per request: ids, workers, sizes, phases, outcome",
    "request_log_max_bytes": "of one file",
    "request_log_max_files": "per process; the oldest is deleted",
    "access_log": "one line per request",
    "log_level": "`debug`, `info`, `warning`, `error` or `critical`",
    "log_format": "`text` or `json`",
}

_SOURCE = {"name": "in metrics and logs; unset = the type"}
_FILE = {
    **_SOURCE,
    "path": "a YAML file that lists workers as `proxy.workers` does; may be replaced at any time",
    "interval": "seconds between two looks at it",
}

_ROLE = {
    **_SOURCE,
    "role": "`context`, `generation` or `mixed`, of all its workers",
    "model": "as in `workers`",
    "labels": "as in `workers`",
    "scheme": "`http` or `https`",
}
_DNS = {
    **_ROLE,
    "name": "in metrics and logs; unset = `dns:` and what is looked up",
    "host": "each of its addresses (A, AAAA) is a worker",
    "port": "of all of them",
    "srv": "instead of `host` and `port`: each target of the lowest priority is a worker, known by its name",
    "family": "`auto` (IPv4 if there is any, so that a worker with both is not two), `ipv4`, `ipv6` or `both`",
    "nameservers": "`address` or `address:port`; unset = those of /etc/resolv.conf",
    "shortest": "seconds; the records' time to live counts as at least this",
    "longest": "and at most this",
    "timeout": "for one look-up",
    "when_empty": "a name that does not exist or has no records: `keep` the last list, or `remove` all",
}
_CLUSTER = {
    "cluster_uri": "`http(s)://host:port`: the proxy serves the storage itself, at its own port; "
    "`etcd://host:port[,etcd://host:port...]`: an etcd",
    "cluster_name": "the workers' must be the same",
    "minimal_instances": "`{context_servers, generation_servers}`, 1 each: `/health` says 503 while fewer are ready",
    "heartbeat_interval_sec": "of the workers, seconds",
    "inactive_timeout_sec": "seconds after which a worker without a heartbeat is gone; what an etcd has lost in an "
    "outage is kept as long",
}
_METADATA = {
    "server_type": "`etcd`",
    "hostname": "of the etcd",
    "port": "of the etcd",
    "health_check_timeout": "seconds for each of two attempts to answer `/health`; who does not is left out",
    "refresh_interval": "seconds between two looks at the keys below `trtllm/`",
}

_KUBERNETES = {
    **_ROLE,
    "name": "in metrics and logs; unset = `kubernetes:` and the Service",
    "service": "whose EndpointSlices tell the workers, a pod each",
    "namespace": "of the Service; unset = the proxy's own",
    "port": "name or number; may be left out when the Service has one",
    "family": "of the pods' addresses: `auto` (IPv4, else IPv6), `ipv4` or `ipv6`",
    "domain": "`zone` or `node`: becomes the label `domain` (see `workers`)",
    "node_label": "instead of `domain`: a label of the pods' nodes, such as `nvidia.com/gpu.clique`; the service "
    "account needs `get` for `nodes`",
    "api": "url of the API server; unset = that of the cluster in which the proxy runs",
    "credentials": "directory with `token` (read for each request), `ca.crt` and `namespace`",
    "relist": "seconds; then everything is read again",
    "watch": "seconds; for so long changes are waited for at once",
}

_STRUCTS: tuple[tuple[str, str, type[msgspec.Struct], dict[str, str]], ...] = (
    ("Top level", "Keys of `trtllm-serve disaggregated`.", Settings, _TOP),
    ("`router` of a section", "", RouterSettings, _ROUTER),
    (
        "`proxy`",
        "What upstream has no key for. Sizes in bytes, times in seconds; each can be set by `DISAGG_PROXY_<KEY>`.",
        ProxySettings,
        _PROXY,
    ),
    (
        "`disagg_cluster`",
        "As upstream; the workers' own configuration has the same mapping.",
        DisaggCluster,
        _CLUSTER,
    ),
    ("`proxy.metadata_server`", "As the file of upstream's `-m`.", MetadataServer, _METADATA),
    (
        "`proxy.discovery`, `type: file`",
        "How sources of all types are followed: [proxy/workers](../workers/README.md).",
        FileEntry,
        _FILE,
    ),
    ("`proxy.discovery`, `type: dns`", "Needs the extra `dns`.", DnsEntry, _DNS),
    (
        "`proxy.discovery`, `type: kubernetes`",
        "The service account needs `list` and `watch` for `endpointslices` (`discovery.k8s.io`) in the namespace.",
        KubernetesEntry,
        _KUBERNETES,
    ),
)
_NOT_KEYS = frozenset({"proxy", "inherited", "warnings", "origin"})


def render() -> str:
    """The README of this folder."""
    parts = [
        "# Configuration",
        "",
        "One YAML file, that of `trtllm-serve disaggregated`. Precedence: command line, environment, file, default.",
        "A key that is close to a known one is an error with a suggestion; any other unknown key at top level or in a",
        "server section is taken as one that upstream passes to its workers, and `disagg-proxy check` lists it.",
    ]
    for title, text, struct, descriptions in _STRUCTS:
        parts += ["", f"## {title}", "", *([text, ""] if text else []), *_table(struct, descriptions)]
    parts += ["", "## Accepted without effect, with a warning", ""]
    parts += [f"* `{row.key}`: {row.reason}" for row in NO_EFFECT]
    parts += ["", "## Refused, because it is not built", "", render_markdown().rstrip()]
    return "\n".join(parts) + "\n"


def _table(struct: type[msgspec.Struct], descriptions: dict[str, str]) -> Iterator[str]:
    yield "| Key | Default | |"
    yield "|---|---|---|"
    for field in msgspec.structs.fields(struct):
        if field.name not in _NOT_KEYS:
            yield f"| `{field.name}` | {_default(field)} | {descriptions[field.name]} |"


def _default(field: msgspec.structs.FieldInfo) -> str:
    value: Any = field.default
    if field.required:
        return "required"
    if (
        value is None
        or isinstance(value, tuple | msgspec.Struct)
        or value is msgspec.NODEFAULT
        or value == ""
    ):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value >> 20} MiB"
    return f"{value:g}" if isinstance(value, float) else f"{value}"


if __name__ == "__main__":
    sys.stdout.write(render())
