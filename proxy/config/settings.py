"""The resolved configuration: read once at start, immutable, passed down explicitly.

Field names are the keys of the YAML file and field defaults their defaults: these structs are the schema.
`proxy.config.load` fills them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from proxy.config.address import WorkerAddress
from proxy.config.disagg_cluster import DisaggCluster
from proxy.config.discovery.kinds import DiscoveryEntry
from proxy.config.listed_worker import ListedWorker, RoleName
from proxy.config.metadata_server import MetadataServer
from proxy.config.minimal_instances import MinimalInstances
from proxy.config.pass_through import PassThroughRoute
from proxy.config.scalars import (
    Bytes,
    Count,
    Name,
    PerWorker,
    Port,
    PositiveSeconds,
    Processes,
    Seconds,
)
from proxy.wire.fields.draft import Unknown
from proxy.wire.fields.own import FieldRule
from proxy.wire.fields.tables import Dialect

MIB = 1024 * 1024
MASK = "***"
SECRET_KEYS = frozenset({"internal_request_auth_key"})


class RouterSettings(msgspec.Struct, frozen=True):
    """The `router` mapping of one section: how a worker of that role is chosen.

    `use_tokens` is an argument of `load_balancing`. The arguments of `conversation` are upstream's and describe its
    table of conversations; here none is kept (`proxy.config.routers` says what each of them did).
    """

    type: Literal[
        "round_robin",
        "load_balancing",
        "conversation",
        "prefix",
        "consistent_hash",
        "two_choices",
        "random",
    ] = "round_robin"
    use_tokens: bool = False
    match_threshold: Annotated[float, Meta(ge=0, le=1)] = 0.75
    tokens_per_block: Annotated[int, Meta(ge=1)] | None = None
    use_token_ids: bool = False
    hash_skip_count: Count = 0
    max_sessions: Count = 100_000
    use_harmony: bool | None = None


class ServerSection(msgspec.Struct, frozen=True):
    """`context_servers` or `generation_servers`.

    `num_instances` always equals `len(urls)`. `inherited` holds the keys of the section that configure
    workers and not the proxy (`tensor_parallel_size`, `kv_cache_config`, ...), as they were written there.
    """

    num_instances: Count = 0
    urls: tuple[WorkerAddress, ...] = ()
    router: RouterSettings = RouterSettings()
    inherited: Mapping[str, Any] = {}


class ProxySettings(msgspec.Struct, frozen=True):
    """The `proxy` mapping: what upstream has no key for.

    Sizes are bytes, times are seconds unless the name says otherwise.
    """

    # Limits. Larger bodies are answered with 413, larger header sections with 431.
    max_body_bytes: Bytes = 128 * MIB
    max_header_bytes: Bytes = 64 * 1024
    max_connections_per_worker: Count = 0  # 0 = no limit

    # Admission; 0 = no limit. In a fleet the limits are those of all processes together.
    max_inflight: Count = 0
    max_inflight_per_key: Count = 0
    # `auto` is the `max_batch_size` that a worker tells, if it does. With attention data parallelism that is the size
    # of one rank, so nothing is limited unless it is asked for.
    max_inflight_per_context_worker: PerWorker = 0
    max_inflight_per_generation_worker: PerWorker = 0
    max_queued: Count = 4096  # 0 = nobody waits
    max_queued_bytes: Count = 1024 * MIB
    queue_order: Literal["fifo", "priority"] = "fifo"
    timeout_queue: Seconds = 60.0
    pause_mode: Literal["queue", "refuse"] = "queue"

    # Deadlines of the legs; 0 switches one off.
    timeout_connect: Seconds = 5.0
    timeout_context: Seconds = 180.0
    timeout_first_byte: Seconds = 180.0
    timeout_idle: Seconds = 180.0
    timeout_total: Seconds = 0.0

    # Legs that may be sent again, as a share of the recent requests; 0 = none.
    retry_budget: Annotated[float, Meta(ge=0, le=10)] = 0.2

    # Without a context worker, generation workers may prefill by themselves.
    fallback_aggregated: Literal["never", "context_down"] = "never"
    # No context legs at all, to measure generation workers alone; also TRTLLM_DISAGG_BENCHMARK_GEN_ONLY=1.
    benchmark_gen_only: bool = False

    # A client that leaves between the legs: send the generation leg and end it at its first byte, or leave the
    # hand-off to the context worker's time-out.
    on_disconnect_after_prefill: Literal["drain", "drop"] = "drain"

    # Slow clients; 0 switches one off.
    header_timeout: Seconds = 15.0
    client_stall_timeout: Seconds = 180.0

    # Comments that keep a silent stream open before its first byte; 0 = none.
    sse_keepalive_seconds: Seconds = 0.0

    # Start and stop.
    server_start_timeout: Seconds = 180.0
    drain_grace: Seconds = 5.0
    drain_timeout: Seconds = 600.0

    # Health of the workers.
    probe_interval: PositiveSeconds = 1.0
    probe_timeout: PositiveSeconds = 5.0
    # Failures in a row, of probes or of legs; the first time out, doubling up to a minute.
    eject_after: Annotated[int, Meta(ge=1)] = 3
    eject_seconds: PositiveSeconds = 2.0
    fail_open: bool = True  # use ejected workers when there are no others
    slow_start_seconds: Seconds = 10.0  # a worker that comes back gets less than its share; 0 = at once
    canary_interval: Seconds = 0.0  # a tiny request through every worker; 0 = off

    # The workers, instead of or beside the sections' urls; entries for the same worker are merged.
    workers: tuple[ListedWorker, ...] = ()
    # Where more of them are told, and how many there must be.
    discovery: tuple[DiscoveryEntry, ...] = ()
    minimal_instances: MinimalInstances | None = None  # None: one of each role that requests need
    metadata_server: MetadataServer | None = None  # upstream's option `-m`
    # Who may register in the storage of `disagg_cluster` that the proxy serves itself; None: whoever reaches it.
    cluster_storage_key_file: Name | None = None
    # Access to the etcd of `disagg_cluster` or `metadata_server`. An authority or a certificate means TLS.
    etcd_user: Name | None = None
    etcd_password_file: Name | None = None
    etcd_tls_ca: Name | None = None
    etcd_tls_certfile: Name | None = None
    etcd_tls_keyfile: Name | None = None
    # Keep both legs within one NVLink domain (label `domain`) even if it is overloaded.
    topology_strict: bool = False

    # Request fields and worker versions.
    accept_prompt_token_ids: bool = False
    worker_version: Literal["auto", "old", "jul", "new"] = "auto"
    worker_dialect: Dialect = "trtllm"
    unknown_fields: Unknown = "drop"
    field_rules: tuple[FieldRule, ...] = ()
    harmony_models: tuple[Name, ...] = ()
    developer_as_system: tuple[Name, ...] = ()  # models whose chat templates know no role "developer"

    # The model's tokenizer; prompts may become token ids here instead of on the context workers.
    tokenizer: Name | None = None
    frontend_tokenisation: bool = False
    tokenisation_shadow: Annotated[float, Meta(ge=0, le=1)] = 0.01
    tokenisation_max_mismatch: Annotated[float, Meta(ge=0, le=1)] = 0.01
    tokenisation_threads: Annotated[int, Meta(ge=1, le=64)] = 2

    # The public side.
    root_path: str = ""
    model_aliases: Mapping[str, Name] = {}  # alias -> served model name
    pass_through: tuple[PassThroughRoute, ...] = ()
    stream_coalesce_ms: Annotated[float, Meta(ge=0)] = 0.0
    several_choices: Literal["fan_out", "pass", "refuse"] = "fan_out"
    max_choices: Annotated[int, Meta(ge=1)] = 128

    # Who may do what. Files with secrets are read again when they change.
    api_keys_file: Name | None = None
    admin_listen: Name | None = None
    admin_token_file: Name | None = None
    # Control for reinforcement learning (`proxy.endpoints.control`): on the admin listener, and on request on the
    # public port, for those who have the admin token.
    rl_control: bool = False
    rl_control_public: bool = False
    rl_fanout_paths: tuple[Name, ...] = (
        "/release_memory",
        "/resume_memory",
        "/update_weights",
        "/memory_status",
        "/server_info",
    )
    rl_fanout_timeout: PositiveSeconds = 600.0
    rl_flush_path: Name | None = None
    worker_api_key_file: Name | None = None
    forward_headers: tuple[Name, ...] = ()
    cors_allow_origins: tuple[Name, ...] = ()

    # TLS; certificates of clients are required when their authority is named.
    tls_certfile: Name | None = None
    tls_keyfile: Name | None = None
    tls_client_ca: Name | None = None
    worker_tls_ca: Name | None = None
    worker_tls_certfile: Name | None = None
    worker_tls_keyfile: Name | None = None
    worker_tls_verify: bool = True

    # What answers tell of their time; logs.
    timing_headers: bool = True
    # Members of answers and headers to workers that tell NeMo-RL when a request came and went on.
    nemo_timing: bool = False
    request_log_dir: Name | None = None
    request_log_max_bytes: Bytes = 64 * MIB
    request_log_max_files: Annotated[int, Meta(ge=2)] = 16
    access_log: bool = True
    log_level: Literal["critical", "error", "warning", "info", "debug"] = "info"
    log_format: Literal["text", "json"] = "text"


class OTLPSettings(msgspec.Struct, frozen=True):
    """`otlp_config`: where spans are sent, None: nowhere."""

    otlp_traces_endpoint: Name | None = None


class Settings(msgspec.Struct, frozen=True):
    """Everything `serve` and `check` know.

    `num_workers` is the number of processes that serve the port. `node_id` None means: taken from the etcd in use,
    else chosen at random at start and reported. `inherited` holds the top-level keys that
    configure workers and not the proxy (upstream passes them to both sections). `warnings` are complete
    sentences for the log or the terminal. `origin` is the path of the YAML file, or None without one.
    """

    hostname: Name = "localhost"
    port: Port = 8000
    num_workers: Processes = 1
    context_servers: ServerSection = ServerSection()
    generation_servers: ServerSection = ServerSection()
    max_retries: Count = 1
    schedule_style: Literal["context_first"] = "context_first"
    gen_tokids_ctxbytes: bool | None = None  # None: as far as the workers know it
    gen_strip_message_history: bool = False
    allow_request_chat_template: bool = False
    node_id: Annotated[int, Meta(ge=0, le=255)] | None = None
    # Upstream's default is 10 s (TRT#16430), shorter than the pools of common clients and load balancers,
    # which then send into a connection that is just being closed.
    server_keep_alive_timeout: Count = 75
    internal_request_auth_key: Name | None = None
    otlp_config: OTLPSettings = OTLPSettings()
    disagg_cluster: DisaggCluster | None = None
    proxy: ProxySettings = ProxySettings()

    inherited: Mapping[str, Any] = {}
    warnings: tuple[str, ...] = ()
    origin: str | None = None

    @property
    def server_start_timeout(self) -> float:
        """Seconds that `serve` waits for the workers at start (`-t`)."""
        return self.proxy.server_start_timeout

    @property
    def workers(self) -> tuple[ListedWorker, ...]:
        """All workers of the configuration, context workers first: the sections' urls and `proxy.workers`."""
        return (
            *_workers_of("context", self.context_servers.urls, self.proxy.workers),
            *_workers_of("generation", self.generation_servers.urls, self.proxy.workers),
        )

    @property
    def discovers(self) -> bool:
        """Whether there may be workers that the configuration does not name."""
        return bool(self.proxy.discovery or self.disagg_cluster or self.proxy.metadata_server)

    @property
    def etcd_hosts(self) -> tuple[str, ...]:
        """`host:port` of the members of the etcd in which the workers register; empty if there is none."""
        if self.disagg_cluster is not None and not self.disagg_cluster.embedded:
            return self.disagg_cluster.etcd_hosts
        metadata = self.proxy.metadata_server
        return (metadata.etcd_host,) if metadata is not None else ()

    def __repr__(self) -> str:
        # The generated form would put the secrets into every log line and traceback that shows settings.
        return f"Settings({self.resolved()!r})"

    def resolved(self) -> dict[str, Any]:
        """Return the configuration in force as plain values in YAML's shape, secrets masked.

        Inherited keys, warnings and the origin are not part of it.
        """
        plain = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name not in {"inherited", "warnings", "origin"}
        }
        for name in SECRET_KEYS & plain.keys():
            plain[name] = None if plain[name] is None else MASK
        for name in ("context_servers", "generation_servers"):
            section: ServerSection = plain[name]
            plain[name] = {
                "num_instances": section.num_instances,
                "urls": [address.text for address in section.urls],
                "router": msgspec.structs.asdict(section.router),
            }
        plain["otlp_config"] = msgspec.structs.asdict(self.otlp_config)
        plain["disagg_cluster"] = msgspec.to_builtins(self.disagg_cluster)
        proxy = msgspec.structs.asdict(self.proxy)
        proxy = {name: list(value) if isinstance(value, tuple) else value for name, value in proxy.items()}
        proxy["model_aliases"] = dict(self.proxy.model_aliases)
        proxy["workers"] = [_plain_worker(worker) for worker in self.proxy.workers]
        proxy["discovery"] = [msgspec.to_builtins(entry) for entry in self.proxy.discovery]
        proxy["pass_through"] = [route.plain() for route in self.proxy.pass_through]
        for name in ("minimal_instances", "metadata_server"):
            proxy[name] = msgspec.to_builtins(getattr(self.proxy, name))
        proxy["field_rules"] = [rule.plain() for rule in self.proxy.field_rules]
        plain["proxy"] = proxy
        return plain


def _workers_of(
    role: RoleName, urls: tuple[WorkerAddress, ...], listed: tuple[ListedWorker, ...]
) -> tuple[ListedWorker, ...]:
    own = [worker for worker in listed if worker.role == role]
    named = {worker.address for worker in own}
    return (*(ListedWorker(url, role) for url in urls if url not in named), *own)


def _plain_worker(worker: ListedWorker) -> dict[str, Any]:
    return {
        "url": worker.address.text,
        "role": worker.role,
        "model": worker.model,
        "labels": dict(worker.labels),
    }
