"""Reads YAML strictly: plain types only, no duplicate keys."""

from __future__ import annotations

from typing import Any

import yaml

from proxy.config.errors import ConfigError


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which keeps the last of two equal keys, made to refuse them.

    The check sits in the composer, before merge keys (`<<`) are resolved: overriding a merged key is no
    duplicate.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            identity = (key.tag, key.value)
            if identity in seen:
                raise yaml.composer.ComposerError(
                    None, None, f"{key.value}: the key appears twice", key.start_mark
                )
            seen.add(identity)
        return node


def parse_yaml(text: str, *, origin: str) -> Any:
    """Parse one YAML document into plain Python values.

    Raises `ConfigError` with line and column for bad syntax, a duplicate key or a type that is not plain.
    """
    try:
        return yaml.load(text, _StrictLoader)  # noqa: S506  (a subclass of SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(_describe(error), origin=origin) from None
    except (ValueError, RecursionError) as error:
        # For example 2024-99-99, which has the form of a date, or brackets nested too deeply.
        raise ConfigError(f"not valid YAML: {error}", origin=origin) from None


def read_yaml_file(path: str) -> dict[str, Any]:
    """Read the mapping in a file; an empty file is an empty mapping.

    Raises `ConfigError` when the file cannot be read, is not UTF-8 YAML or holds something else.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", origin=path) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text: {error.reason} at byte {error.start}", origin=path) from None
    document = parse_yaml(text, origin=path)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError("expected a mapping of keys to values at the top of the file", origin=path)
    return require_text_keys(document, origin=path)


def require_text_keys(mapping: dict[Any, Any], *, origin: str, key: str = "") -> dict[str, Any]:
    """Return the mapping when all its keys are text; raise `ConfigError` naming the first that is not.

    YAML 1.1 reads the bare words yes, no, on and off as booleans, also as keys.
    """
    for each in mapping:
        if not isinstance(each, str):
            raise ConfigError(f"the key {each!r} is not text", origin=origin, key=key)
    return mapping


def _describe(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        return f"{where}{error.problem or error.context or 'not valid YAML'}"
    return " ".join(f"not valid YAML: {error}".split())
