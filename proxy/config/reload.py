"""What a configuration that was read again changes in a running proxy: the workers, nothing else."""

from __future__ import annotations

from msgspec.structs import replace

from proxy.config.settings import ServerSection, Settings

_SECTIONS = ("context_servers", "generation_servers")
_NOT_CONFIGURED = frozenset({"inherited", "warnings", "origin"})


def with_workers_of(current: Settings, new: Settings) -> Settings:
    """The configuration in force with the worker lists of another one."""
    return replace(
        current,
        context_servers=_with_urls(current.context_servers, new.context_servers),
        generation_servers=_with_urls(current.generation_servers, new.generation_servers),
    )


def changes_for_restart(current: Settings, new: Settings) -> list[str]:
    """Dotted keys that differ and take effect only when the proxy starts again; sorted.

    `current` may be the result of `with_workers_of`. A `node_id` that was chosen at random is no difference.
    """
    keys = []
    new = with_workers_of(new, current)
    for name in Settings.__struct_fields__:
        before, after = getattr(current, name), getattr(new, name)
        if name in _NOT_CONFIGURED or before == after or (name == "node_id" and after is None):
            continue
        if name in _SECTIONS:
            if before.router != after.router:
                keys.append(f"{name}.router")
        elif name == "proxy":
            fields = before.__struct_fields__
            keys += [f"proxy.{field}" for field in fields if getattr(before, field) != getattr(after, field)]
        else:
            keys.append(name)
    return sorted(keys)


def _with_urls(section: ServerSection, other: ServerSection) -> ServerSection:
    return replace(section, urls=other.urls, num_instances=other.num_instances)
