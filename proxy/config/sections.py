"""Reads `context_servers` and `generation_servers`: worker urls, router, and what is only for the workers."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.config.errors import ConfigError
from proxy.config.routers import read_router
from proxy.config.scalars import Count
from proxy.config.settings import ServerSection
from proxy.config.sources import BUILT_TOP_KEYS, SECTION_KEYS, unknown_key
from proxy.config.suggest import closest
from proxy.config.values import Entry, convert, convert_mapping, show, without_password

SECTIONS = ("context_servers", "generation_servers")


def read_section(
    name: str, entry: Entry | None, inherited: Mapping[str, Entry], warnings: list[str]
) -> ServerSection:
    """Read one section.

    `inherited` holds the top-level keys that upstream passes to both sections: `urls`, `router` and
    `num_instances` among them count as if they stood in the section. Appends to `warnings`.
    Raises `ConfigError`, also when a section contradicts an inherited key, as upstream does.
    """
    origin = entry.origin if entry is not None else ""
    raw = convert_mapping(name, entry) if entry is not None else {}
    own = {key: Entry(value, origin) for key, value in raw.items()}
    for key, value in own.items():
        if key not in SECTION_KEYS and closest(key, SECTION_KEYS) is not None:
            raise unknown_key(f"{name}.{key}", key, SECTION_KEYS, value)
        if key in BUILT_TOP_KEYS:
            warnings.append(
                f'{value.origin}: {name}.{key} is handed to the workers only; for the proxy write "{key}" '
                "at the top level"
            )
        if key in inherited and inherited[key].value != value.value:
            raise _error(f"{name}.{key}", value, f'contradicts the top-level key "{key}"')
    effective = {key: each for key, each in inherited.items() if key in SECTION_KEYS} | own

    urls = _read_urls(f"{name}.urls", effective.get("urls"))
    return ServerSection(
        num_instances=_read_num_instances(f"{name}.num_instances", effective.get("num_instances"), len(urls)),
        urls=urls,
        router=read_router(f"{name}.router", effective.get("router"), warnings),
        inherited={key: each.value for key, each in own.items() if key not in SECTION_KEYS},
    )


def _read_urls(key: str, entry: Entry | None) -> tuple[WorkerAddress, ...]:
    if entry is None or entry.value is None:
        return ()
    if not isinstance(entry.value, list):
        raise _error(key, entry, "expected a list of worker urls")
    addresses: dict[WorkerAddress, int] = {}
    for index, text in enumerate(entry.value):
        here = f"{key}[{index}]"
        each = Entry(without_password(text), entry.origin)
        if not isinstance(text, str):
            raise _error(here, each, 'expected a worker url such as "host:8001"')
        try:
            address = parse_worker_address(text)
        except ValueError as error:
            raise _error(here, each, str(error)) from None
        if address in addresses:
            raise _error(here, each, f"the same worker as {key}[{addresses[address]}]")
        addresses[address] = index
    return tuple(addresses)


def _read_num_instances(key: str, entry: Entry | None, urls: int) -> int:
    if entry is None or entry.value is None:
        return urls
    number: int = convert(key, entry, Count)
    if number != urls:
        counted = {0: "there are no urls", 1: "there is 1 url"}.get(urls, f"there are {urls} urls")
        raise _error(key, entry, f"contradicts the number of workers: {counted}")
    return number


def _error(key: str, entry: Entry, problem: str) -> ConfigError:
    return ConfigError(problem, origin=entry.origin, key=key, value=show(key, entry.value))
