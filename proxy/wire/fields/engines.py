"""Fields with which other engines' routers steer prefill and decode. Here the proxy does that."""

from proxy.wire.fields.accepted import INTERNAL
from proxy.wire.fields.rule import Drop, Rule

_ELSEWHERE = "another engine's way to move KV caches"

HAND_OFF = (
    *(Rule(name, Drop(), "between proxy and workers only") for name in sorted(INTERNAL)),
    Rule("kv_transfer_params", Drop(), _ELSEWHERE),
    Rule("ec_transfer_params", Drop(), _ELSEWHERE),
    Rule("bootstrap_host", Drop(), _ELSEWHERE),
    Rule("bootstrap_port", Drop(), _ELSEWHERE),
    Rule("bootstrap_room", Drop(), _ELSEWHERE),
    Rule("disagg_prefill_dp_rank", Drop(), _ELSEWHERE),
)
"""Dropped and counted in every dialect and whatever `unknown_fields` says: clients must not steer hand-offs."""

HAND_OFF_NAMES = frozenset(rule.field for rule in HAND_OFF)

PLACEMENT = (
    Rule("routed_dp_rank", Drop(), "the workers place requests on their ranks"),
    Rule("data_parallel_rank", Drop(), "the workers place requests on their ranks"),
)
