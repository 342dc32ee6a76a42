"""Reads a mapping below a key into a flat struct."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from proxy.config.errors import ConfigError
from proxy.config.sources import unknown_key
from proxy.config.values import Entry, convert, convert_mapping, show

S = TypeVar("S", bound=msgspec.Struct)


def read_struct(key: str, entry: Entry, struct: type[S]) -> S:
    """Read the mapping; what is not written there gets the struct's default.

    Args:
        key: its dotted path.
        entry: the value; null is an empty mapping.
        struct: its fields are the keys; `__post_init__` may raise `ValueError` with a sentence.

    Raises:
        ConfigError: an unknown or missing key, or a wrong value.
    """
    given = convert_mapping(key, entry)
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    for name, value in given.items():
        if name not in fields:
            raise unknown_key(f"{key}.{name}", name, frozenset(fields), Entry(value, entry.origin))
    for name, field in fields.items():
        if field.required and name not in given:
            raise ConfigError("is missing", origin=entry.origin, key=f"{key}.{name}")
    values: dict[str, Any] = {
        name: convert(f"{key}.{name}", Entry(value, entry.origin), fields[name].type)
        for name, value in given.items()
    }
    try:
        return struct(**values)
    except ValueError as error:
        value = show(key, entry.value)
        raise ConfigError(str(error), origin=entry.origin, key=key, value=value) from None
