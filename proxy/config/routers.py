"""Reads the `router` mapping of a section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.config.errors import ConfigError
from proxy.config.not_built import find_not_built, refusal
from proxy.config.settings import RouterSettings
from proxy.config.sources import ROUTER_KEYS, unknown_key
from proxy.config.values import Entry, convert, convert_mapping, show

_NO_TABLE = "the worker follows from the conversation's key, no table of conversations is kept"
_NO_BLOCKS = "conversations are recognised by their first messages as they are, not by blocks"

# Argument -> the router types in which it has an effect, and why it has none in others.
ARGUMENTS: Mapping[str, tuple[frozenset[str], str]] = {
    "use_tokens": (frozenset({"load_balancing"}), "only load_balancing counts tokens"),
    "match_threshold": (frozenset(), _NO_BLOCKS),
    "tokens_per_block": (frozenset(), _NO_BLOCKS),
    "use_token_ids": (frozenset(), _NO_BLOCKS),
    "hash_skip_count": (frozenset(), _NO_BLOCKS),
    "max_sessions": (frozenset(), _NO_TABLE),
    "use_harmony": (frozenset(), "prompts are not tokenised"),
}


def read_router(key: str, entry: Entry | None, warnings: list[str]) -> RouterSettings:
    """Read the mapping; `key` is its dotted path. Arguments without effect are noted in `warnings`.

    Raises `ConfigError`.
    """
    if entry is None:
        return RouterSettings()
    given = convert_mapping(key, entry)
    for name, value in given.items():
        if name not in ROUTER_KEYS:
            raise unknown_key(f"{key}.{name}", name, ROUTER_KEYS, Entry(value, entry.origin))
    # The type first: its arguments are refused for the same reason, but say less.
    for name in sorted(given, key=lambda name: name != "type"):
        row = find_not_built(f"router.{name}", given[name])
        if row is not None:
            raise _error(f"{key}.{name}", Entry(given[name], entry.origin), refusal(row))
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(RouterSettings):
        value = given.get(field.name)
        if value is not None:
            each = Entry(value, entry.origin)
            path = f"{key}.{field.name}"
            values[field.name] = (
                _read_type(path, each, field.type)
                if field.name == "type"
                else convert(path, each, field.type)
            )
    router = RouterSettings(**values)
    _note_arguments(key, entry.origin, router, values, warnings)
    return router


def _read_type(key: str, entry: Entry, annotation: Any) -> Any:
    # Upstream compares the names without regard to case.
    lowered = entry.value.lower() if isinstance(entry.value, str) else entry.value
    try:
        return convert(key, Entry(lowered, entry.origin), annotation)
    except ConfigError:
        names = ", ".join(annotation.__args__)
        raise _error(key, entry, f"unknown router type; expected one of {names}") from None


def _note_arguments(
    key: str, origin: str, router: RouterSettings, values: Mapping[str, Any], warnings: list[str]
) -> None:
    defaults = RouterSettings()
    for name, (types, reason) in ARGUMENTS.items():
        if name in values and router.type not in types and values[name] != getattr(defaults, name):
            warnings.append(f"{origin}: {key}.{name} = {show(name, values[name])} has no effect: {reason}")


def _error(key: str, entry: Entry, problem: str) -> ConfigError:
    return ConfigError(problem, origin=entry.origin, key=key, value=show(key, entry.value))
