"""Reads `proxy.pass_through`: a list of {path, role, methods}."""

from __future__ import annotations

from proxy.config.errors import ConfigError
from proxy.config.nested import read_struct
from proxy.config.pass_through import PassThroughRoute
from proxy.config.values import Entry, show
from proxy.config.yaml_file import parse_yaml


def read_pass_through(key: str, entry: Entry | None) -> tuple[PassThroughRoute, ...]:
    """Read the list; null and an empty list mean that there is none.

    `key` is its dotted path. Raises `ConfigError`.
    """
    if entry is None:
        return ()
    value = parse_yaml(entry.value, origin=entry.origin) if entry.text else entry.value
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _error(key, Entry(value, entry.origin), "expected a list of {path, role, methods}")
    routes: dict[str, PassThroughRoute] = {}
    for index, each in enumerate(value):
        here = f"{key}[{index}]"
        route = read_struct(here, Entry(each, entry.origin), PassThroughRoute)
        if route.path in routes:
            raise _error(f"{here}.path", Entry(route.path, entry.origin), "appears twice")
        routes[route.path] = route
    return tuple(routes.values())


def _error(key: str, entry: Entry, problem: str) -> ConfigError:
    return ConfigError(problem, origin=entry.origin, key=key, value=show(key, entry.value))
