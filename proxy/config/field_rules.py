"""Reads `proxy.field_rules`: a list of {field, action, to, value, values, message, route}."""

from __future__ import annotations

import msgspec

from proxy.config.errors import ConfigError
from proxy.config.nested import read_list
from proxy.config.sources import unknown_key
from proxy.config.values import Entry, convert_mapping, show
from proxy.wire.fields.own import FieldRule

RULE_KEYS = frozenset(FieldRule.__struct_fields__)


def read_field_rules(key: str, entry: Entry | None) -> tuple[FieldRule, ...]:
    """Read the list; null and an empty list mean that there is none.

    `key` is its dotted path. Raises `ConfigError`.
    """
    return tuple(_read_rule(here, each) for here, each in read_list(key, entry, "{field, action, ...}"))


def _read_rule(key: str, entry: Entry) -> FieldRule:
    given = convert_mapping(key, entry)
    for name, value in given.items():
        if name not in RULE_KEYS:
            raise unknown_key(f"{key}.{name}", name, RULE_KEYS, Entry(value, entry.origin))
    try:
        return msgspec.convert(given, FieldRule)
    except msgspec.ValidationError as error:
        value = show(key, entry.value)
        raise ConfigError(str(error), origin=entry.origin, key=key, value=value) from None
