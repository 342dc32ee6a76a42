"""Reads `proxy.pass_through`: a list of {path, role, methods}."""

from __future__ import annotations

from proxy.config.errors import ConfigError
from proxy.config.nested import read_list, read_struct
from proxy.config.pass_through import PassThroughRoute
from proxy.config.values import Entry, show


def read_pass_through(key: str, entry: Entry | None) -> tuple[PassThroughRoute, ...]:
    """Read the list; null and an empty list mean that there is none.

    `key` is its dotted path. Raises `ConfigError`.
    """
    routes: dict[str, PassThroughRoute] = {}
    for here, each in read_list(key, entry, "{path, role, methods}"):
        route = read_struct(here, each, PassThroughRoute)
        if route.path in routes:
            name = f"{here}.path"
            raise ConfigError("appears twice", origin=each.origin, key=name, value=show(name, route.path))
        routes[route.path] = route
    return tuple(routes.values())
