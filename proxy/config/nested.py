"""Reads what is nested below a key: a mapping into a flat struct, a list entry by entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from proxy.config.errors import ConfigError
from proxy.config.sources import unknown_key
from proxy.config.values import Entry, convert, convert_mapping, show
from proxy.config.yaml_file import parse_yaml

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


def read_list(key: str, entry: Entry | None, members: str) -> Iterator[tuple[str, Entry]]:
    """Yield each entry of a list with its dotted path; null and an empty list mean that there is none.

    Args:
        key: its dotted path.
        entry: the value; a text is parsed as YAML.
        members: what an entry looks like, for the error.

    Raises:
        ConfigError: it is no list.
    """
    if entry is None:
        return
    value = parse_yaml(entry.value, origin=entry.origin) if entry.text else entry.value
    if value is None:
        return
    if not isinstance(value, list):
        problem = f"expected a list of {members}"
        raise ConfigError(problem, origin=entry.origin, key=key, value=show(key, value))
    for index, each in enumerate(value):
        yield f"{key}[{index}]", Entry(each, entry.origin)
