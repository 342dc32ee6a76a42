"""What a configuration that was read again would change, besides the workers, if the proxy started anew."""

from __future__ import annotations

from proxy.config.settings import Settings

_SECTIONS = ("context_servers", "generation_servers")
_NOT_CONFIGURED = frozenset({"inherited", "warnings", "origin"})


def changes_for_restart(current: Settings, new: Settings) -> list[str]:
    """Dotted keys that differ and take effect only when the proxy starts again; sorted.

    The keys that list workers are left out: they take effect at once. A `node_id` that is not configured is no
    difference, since the one in force was chosen at random.
    """
    keys = []
    for name in Settings.__struct_fields__:
        before, after = getattr(current, name), getattr(new, name)
        if name in _NOT_CONFIGURED or (name == "node_id" and after is None):
            continue
        if name in _SECTIONS:
            if before.router != after.router:
                keys.append(f"{name}.router")
        elif name == "proxy":
            keys += [
                f"proxy.{field}"
                for field in before.__struct_fields__
                if field != "workers" and getattr(before, field) != getattr(after, field)
            ]
        elif before != after:
            keys.append(name)
    return sorted(keys)
