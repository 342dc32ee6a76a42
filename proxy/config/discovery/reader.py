"""Reads `proxy.discovery`: a list of {type, name, ...}."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.config.discovery.entry import RESERVED_NAMES, SourceEntry
from proxy.config.discovery.kinds import KINDS
from proxy.config.errors import ConfigError
from proxy.config.nested import read_list, read_struct
from proxy.config.values import Entry, convert_mapping, show


def read_discovery(key: str, entry: Entry | None) -> tuple[Any, ...]:
    """Read the list; null and an empty list mean that there is none.

    `key` is its dotted path. Raises `ConfigError`.
    """
    sources: dict[str, SourceEntry] = {}
    for here, each in read_list(key, entry, "{type, ...}"):
        source = _read_source(here, each)
        if source.name in sources or source.name in RESERVED_NAMES:
            problem = f'there is a source "{source.name}" already: give this one another name'
            raise _error(f"{here}.name", Entry(source.name, each.origin), problem)
        sources[source.name] = source
    return tuple(sources.values())


def _read_source(key: str, entry: Entry) -> SourceEntry:
    given = convert_mapping(key, entry)
    kind = given.get("type")
    struct = KINDS.get(kind) if isinstance(kind, str) else None
    if struct is None:
        raise _error(f"{key}.type", Entry(kind, entry.origin), f"expected one of {', '.join(KINDS)}")
    fields = {name: value for name, value in given.items() if name != "type"}
    source = read_struct(key, Entry(fields, entry.origin), struct)
    return source if source.name else msgspec.structs.replace(source, name=source.default_name)


def _error(key: str, entry: Entry, problem: str) -> ConfigError:
    return ConfigError(problem, origin=entry.origin, key=key, value=show(key, entry.value))
