"""The settings of one simulated worker."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.sim.engine import Speed
from proxy.sim.faults import FaultLike
from proxy.sim.registration import RegistrationSettings

PromptIds = Callable[[Mapping[str, Any]], Iterable[int]]
"""From a request's body to the ids of its prompt."""

Transceiver = Literal["full", "cpp", "python", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Everything that a worker can be told; the defaults answer as fast as possible.

    ``transceiver`` decides what a hand-off carries: ``cpp`` the opaque state, ``python`` the endpoint and the
    attention-DP rank, ``full`` all three, ``none`` refuses disaggregated requests.
    """

    profile: str = "jul"  # old, jul, new or nemo
    model: str = "sim"
    speed: Speed = field(default_factory=Speed)
    transceiver: Transceiver = "full"
    generation_first: bool = True  # False: generation-first legs are refused with 400
    auth_key: str | None = None  # `internal_request_auth_key`: generation legs must be signed
    max_sequence: int = 0  # tokens of prompt and budget together; 0: no limit
    keep_alive_seconds: float = 5.0  # the real worker's constant
    disconnect_seconds: float = 0.0  # from a disconnect to the abort; the real worker polls once per second
    clock_seconds: float = 0.0  # how long GET /steady_clock_offset takes; the real worker sleeps 0.2 s
    perf_metrics: bool = True  # `return_perf_metrics`; old workers have none
    nemo_stamps: bool = False  # context answers tell their times, as those of NeMo-RL's workers do
    kv_events: bool = False  # hash prompts into blocks: KV events, and true cached_tokens (costs CPU)
    tokens_per_block: int = 32
    hash_algorithm: str = "v1_block_key"  # or v2_sha256, v2_sha256_64
    allow_chat_template: bool = False
    rl_control: bool = False  # the memory and weight routes; with `auth_key` calls must be signed
    next_routes: bool = False  # hand-offs on /v1/responses, and /v1/messages
    prompt_ids: PromptIds | None = None  # tokenizes requests that bring no ids; None: see `proxy.sim.tokens`
    openapi: bool = True  # False: /openapi.json is 404
    record: int = 256  # how many of the last requests are kept; 0: none
    record_bytes: int = 1 << 18  # bodies above this size are not kept
    faults: tuple[FaultLike, ...] = ()
    registration: RegistrationSettings | None = None  # in a cluster storage; needs TCP
