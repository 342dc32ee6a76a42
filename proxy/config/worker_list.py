"""Reads `proxy.workers`: a list of {url, role, model, labels}."""

from __future__ import annotations

from typing import Any

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.config.errors import ConfigError
from proxy.config.listed_worker import ListedWorker, RoleName
from proxy.config.sources import unknown_key
from proxy.config.values import Entry, convert_mapping, show, without_password
from proxy.config.yaml_file import parse_yaml

ENTRY_KEYS = frozenset({"url", "role", "model", "labels"})
_ROLES: dict[str, tuple[RoleName, ...]] = {
    "context": ("context",),
    "generation": ("generation",),
    "mixed": ("context", "generation"),
}


def read_worker_list(key: str, entry: Entry | None) -> tuple[ListedWorker, ...]:
    """Read the list; null, an empty list and `none` mean that there is none. `mixed` workers count in both roles.

    `key` is its dotted path. Raises `ConfigError`.
    """
    if entry is None:
        return ()
    value = parse_yaml(entry.value, origin=entry.origin) if entry.text else entry.value
    if value is None or value == "none":
        return ()
    if not isinstance(value, list):
        raise _error(key, Entry(value, entry.origin), "expected a list of {url, role, model, labels}")
    found: dict[tuple[WorkerAddress, RoleName], str] = {}
    workers: list[ListedWorker] = []
    for index, each in enumerate(value):
        here = f"{key}[{index}]"
        for worker in read_worker_entry(here, Entry(each, entry.origin)):
            place = (worker.address, worker.role)
            if place in found:
                raise _error(
                    here, Entry(worker.address.text, entry.origin), f"the same worker as {found[place]}"
                )
            found[place] = here
            workers.append(worker)
    return tuple(workers)


def read_worker_entry(key: str, entry: Entry) -> list[ListedWorker]:
    """Read one element of the list: one worker per role. Raises `ConfigError`."""
    given = convert_mapping(key, entry)
    for name, value in given.items():
        if name not in ENTRY_KEYS:
            raise unknown_key(f"{key}.{name}", name, ENTRY_KEYS, Entry(value, entry.origin))
    address = _read_url(f"{key}.url", Entry(given.get("url"), entry.origin))
    role = given.get("role")
    roles = _ROLES.get(role.lower()) if isinstance(role, str) else None
    if roles is None:
        raise _error(f"{key}.role", Entry(role, entry.origin), f"expected one of {', '.join(_ROLES)}")
    model = given.get("model")
    if model is not None and not (isinstance(model, str) and model):
        raise _error(f"{key}.model", Entry(model, entry.origin), "expected a text that is not empty or null")
    labels = _read_labels(f"{key}.labels", Entry(given.get("labels"), entry.origin))
    return [ListedWorker(address, each, model, labels) for each in roles]


def _read_url(key: str, entry: Entry) -> WorkerAddress:
    if not isinstance(entry.value, str):
        raise _error(key, entry, 'expected a worker url such as "host:8001"')
    try:
        return parse_worker_address(entry.value)
    except ValueError as error:
        shown = Entry(without_password(entry.value), entry.origin)
        raise _error(key, shown, str(error)) from None


def _read_labels(key: str, entry: Entry) -> dict[str, str]:
    labels: dict[str, Any] = convert_mapping(key, entry)
    for name, value in labels.items():
        if not isinstance(value, str):
            raise _error(f"{key}.{name}", Entry(value, entry.origin), "expected a text")
    return labels


def _error(key: str, entry: Entry, problem: str) -> ConfigError:
    return ConfigError(problem, origin=entry.origin, key=key, value=show(key, entry.value))
