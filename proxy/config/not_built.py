"""Keys that are known but not built: refused with a reason, never ignored.

`NOT_BUILT` is the literal table; the README of this folder quotes it through `render_markdown`. Building a
feature moves its rows out of here.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Planned = Literal["later", "not planned"]


class NotBuilt(msgspec.Struct, frozen=True):
    """One row: a key, or one `value` of a key, that this version refuses.

    `inert` lists values that describe what happens today: they are accepted, as null always is. `router.*` stands
    for the router of either section.
    """

    key: str
    reason: str
    nearest: str
    planned: Planned
    value: str | None = None
    inert: tuple[Any, ...] = ()


class NoEffect(msgspec.Struct, frozen=True):
    """One key of upstream that is accepted, checked for its type and has no effect."""

    key: str
    type: Any
    default: Any
    reason: str


_CACHE_AWARE = "an argument of the router that looks at KV caches"
_BALANCING = "router `prefix` without it"

NOT_BUILT: tuple[NotBuilt, ...] = (
    # Upstream's keys.
    NotBuilt(
        "schedule_style",
        "both legs at once need generation workers that wait for their context",
        "`context_first`",
        "later",
        value="generation_first",
    ),
    NotBuilt(
        "disagg_coordinator_url",
        "the processes of a fleet share their state without a coordinator",
        "`num_workers` on one machine, several proxies behind a load balancer, each with its own `node_id`",
        "not planned",
    ),
    NotBuilt(
        "conditional_disagg_config",
        "every request takes both legs",
        "leave it out",
        "later",
        inert=({},),
    ),
    NotBuilt(
        "conversation_affinity_header_for_subagents",
        "a subagent's conversation is its own",
        "`x-session-id` with the parent's conversation",
        "later",
    ),
    NotBuilt(
        "subagent_affinity_scope",
        "a subagent's conversation is its own",
        "`x-session-id` with the parent's conversation",
        "later",
        inert=("context",),
    ),
    # Routers.
    NotBuilt(
        "router.type",
        "the KV cache events of the workers are not read",
        "`prefix`",
        "later",
        value="kv_cache_aware",
    ),
    NotBuilt("router.max_batch_size", _CACHE_AWARE, _BALANCING, "later"),
    NotBuilt("router.custom_tokenizer", _CACHE_AWARE, _BALANCING, "later"),
    NotBuilt("router.tokenizer_dir", _CACHE_AWARE, _BALANCING, "later"),
    NotBuilt("router.model_path", _CACHE_AWARE, _BALANCING, "later"),
    NotBuilt("router.track_routed_blocks", _CACHE_AWARE, _BALANCING, "later"),
    NotBuilt("router.load_weight", _CACHE_AWARE, _BALANCING, "later"),
    NotBuilt("router.load_cap", _CACHE_AWARE, _BALANCING, "later"),
)

NO_EFFECT: tuple[NoEffect, ...] = (
    NoEffect("perf_metrics_max_requests", int, 0, "the proxy's own records are in `proxy.request_log_dir`"),
    NoEffect(
        "return_perf_metrics",
        bool,
        False,
        "the workers' metrics pass when a client asks for them; `proxy.timing_headers` are the proxy's own",
    ),
    NoEffect("perf_metrics_output_dir", str | None, None, "the proxy's own is `proxy.request_log_dir`"),
)

_ROWS: dict[tuple[str, str | None], NotBuilt] = {(row.key, row.value): row for row in NOT_BUILT}
NO_EFFECT_ROWS: dict[str, NoEffect] = {row.key: row for row in NO_EFFECT}


def not_built_keys(scope: str) -> frozenset[str]:
    """Return the names of the refused keys in one scope: `""` (top level), `proxy` or `router`."""
    prefix = f"{scope}." if scope else ""
    names = [row.key.removeprefix(prefix) for row in NOT_BUILT if row.key.startswith(prefix)]
    return frozenset(name for name in names if "." not in name and not name.startswith("-"))


def find_not_built(key: str, value: object) -> NotBuilt | None:
    """Return the row that a configured value meets, or None when the value is fine.

    `key` is the row's key (`router.type`, `disagg_cluster`).
    """
    row = _ROWS.get((key, value.lower())) if isinstance(value, str) else None
    row = row or _ROWS.get((key, None))
    if row is None or value is None:
        return None
    return None if any(_same(value, each) for each in row.inert) else row


def refusal(row: NotBuilt) -> str:
    """Say why a value is refused and what works instead."""
    when = "not built yet" if row.planned == "later" else "not supported"
    return f"{when} ({row.reason}); nearest that works: {row.nearest}"


def render_markdown() -> str:
    """Render `NOT_BUILT` as the Markdown table that the README of this folder quotes."""
    lines = ["| Key | Why it is refused | Nearest that works | Planned |", "|---|---|---|---|"]
    for row in NOT_BUILT:
        name = row.key if row.value is None else f"{row.key}: {row.value}"
        lines.append(f"| `{name}` | {row.reason} | {row.nearest} | {row.planned} |")
    return "\n".join(lines) + "\n"


def _same(left: object, right: object) -> bool:
    # 1 == True and 0 == False in Python, but not in a configuration.
    return left == right and isinstance(left, bool) == isinstance(right, bool)
