"""Reads `proxy.field_rules`: a list of {field, action, to, value, values, message, route}."""

from __future__ import annotations

import msgspec

from proxy.config.errors import ConfigError
from proxy.config.sources import unknown_key
from proxy.config.values import Entry, convert_mapping, show
from proxy.config.yaml_file import parse_yaml
from proxy.wire.fields.own import FieldRule

RULE_KEYS = frozenset(FieldRule.__struct_fields__)


def read_field_rules(key: str, entry: Entry | None) -> tuple[FieldRule, ...]:
    """Read the list; null and an empty list mean that there is none.

    `key` is its dotted path. Raises `ConfigError`.
    """
    if entry is None:
        return ()
    value = parse_yaml(entry.value, origin=entry.origin) if entry.text else entry.value
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _error(key, Entry(value, entry.origin), "expected a list of {field, action, ...}")
    return tuple(_read_rule(f"{key}[{index}]", Entry(each, entry.origin)) for index, each in enumerate(value))


def _read_rule(key: str, entry: Entry) -> FieldRule:
    given = convert_mapping(key, entry)
    for name, value in given.items():
        if name not in RULE_KEYS:
            raise unknown_key(f"{key}.{name}", name, RULE_KEYS, Entry(value, entry.origin))
    try:
        return msgspec.convert(given, FieldRule)
    except msgspec.ValidationError as error:
        raise _error(key, entry, str(error)) from None


def _error(key: str, entry: Entry, problem: str) -> ConfigError:
    return ConfigError(problem, origin=entry.origin, key=key, value=show(key, entry.value))
