"""Resolves the configuration: precedence, compatibility with `trtllm-serve disaggregated`, refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from proxy.config.container import CONTAINER_MARKS, is_loopback, runs_in_container
from proxy.config.contradictions import find_contradictions, find_useless
from proxy.config.discovery.reader import read_discovery
from proxy.config.errors import ConfigError
from proxy.config.field_rules import read_field_rules
from proxy.config.minimal_instances import MinimalInstances
from proxy.config.nested import read_struct
from proxy.config.not_built import NO_EFFECT_ROWS, find_not_built, not_built_keys, refusal
from proxy.config.otlp import read_otlp
from proxy.config.pass_through_list import read_pass_through
from proxy.config.registration import (
    read_disagg_cluster,
    read_metadata_server,
    registration_warnings,
    without_urls,
)
from proxy.config.sections import SECTIONS, read_section
from proxy.config.settings import ProxySettings, Settings
from proxy.config.sources import SECTION_KEYS, Layers, read_layers
from proxy.config.values import Entry, convert, show
from proxy.config.worker_list import read_worker_list
from proxy.config.yaml_file import parse_yaml

# Keys with a reader of their own.
_READ_APART = frozenset(
    {
        *SECTIONS,
        "otlp_config",
        "disagg_cluster",
        "workers",
        "discovery",
        "minimal_instances",
        "metadata_server",
        "field_rules",
        "pass_through",
    }
)


def load_settings(
    path: str | None,
    *,
    overrides: Mapping[str, object],
    environ: Mapping[str, str],
    container_marks: Iterable[str] = CONTAINER_MARKS,
) -> Settings:
    """Read and check the whole configuration. Precedence: overrides, environment, YAML file, defaults.

    `path` is the YAML file of `trtllm-serve disaggregated`, with or without a `proxy` mapping; None means no
    file. `overrides` maps keys (top-level ones and those of `proxy`, both without prefix) to values, as
    `proxy.config.options.overrides_from` returns them; its entry `warnings` is added to the warnings.
    `environ` is the process environment; `DISAGG_PROXY_<KEY>` sets a key, with YAML for lists and mappings.
    Empty variables count as unset. `container_marks` are files whose presence means "inside a container".

    Raises `ConfigError` for the first mistake found.
    """
    layers = read_layers(path, overrides=overrides, environ=environ)
    warnings = layers.warnings
    _refuse_not_built("", layers.top, warnings)
    _refuse_not_built("proxy", layers.proxy, warnings)
    _note_no_effect(layers, warnings)

    values: dict[str, Any] = _convert_fields(Settings, "", layers.top)
    for name in SECTIONS:
        values[name] = read_section(name, layers.top.get(name), layers.inherited, warnings)
    values["otlp_config"] = read_otlp(layers.top.get("otlp_config"), warnings)
    values["disagg_cluster"] = cluster = read_disagg_cluster(layers.top.get("disagg_cluster"))
    minimal = _read_minimal_instances(layers.proxy.get("minimal_instances"))
    values["proxy"] = proxy = ProxySettings(
        **_convert_fields(ProxySettings, "proxy.", layers.proxy),
        workers=read_worker_list("proxy.workers", layers.proxy.get("workers")),
        discovery=read_discovery("proxy.discovery", layers.proxy.get("discovery")),
        minimal_instances=minimal or (cluster.minimal_instances if cluster is not None else None),
        metadata_server=read_metadata_server("proxy.metadata_server", layers.proxy.get("metadata_server")),
        field_rules=read_field_rules("proxy.field_rules", layers.proxy.get("field_rules")),
        pass_through=read_pass_through("proxy.pass_through", layers.proxy.get("pass_through")),
    )
    _refuse_contradictions(proxy, layers.proxy, warnings)
    inherited = {key: entry.value for key, entry in layers.inherited.items() if key not in SECTION_KEYS}
    settings, notes = without_urls(Settings(**values, inherited=inherited, origin=path))
    warnings += [*notes, *registration_warnings(settings)]
    _refuse_auto_without_etcd(layers.top.get("node_id"), settings)

    _note_missing_workers(settings, warnings)
    if is_loopback(settings.hostname) and runs_in_container(environ, container_marks):
        warnings.append(
            f"hostname is {settings.hostname}: inside a container nobody outside can connect; "
            "set hostname to 0.0.0.0 or ::"
        )
    return msgspec.structs.replace(settings, warnings=tuple(warnings))


def _read_minimal_instances(entry: Entry | None) -> MinimalInstances | None:
    if entry is None or entry.value is None:
        return None
    return read_struct("proxy.minimal_instances", entry, MinimalInstances)


def _note_missing_workers(settings: Settings, warnings: list[str]) -> None:
    workers = settings.workers
    if settings.discovers:
        return  # what the sources will tell, labels included, is not known here
    for name in SECTIONS:
        role = name.removesuffix("_servers")
        if not any(worker.role == role for worker in workers):
            warnings.append(f"{name} has no urls: the proxy cannot become ready")
    if settings.proxy.topology_strict and not any("domain" in worker.labels for worker in workers):
        warnings.append("proxy.topology_strict has no effect: no worker of proxy.workers has a label domain")


def _convert_fields(
    struct: type[msgspec.Struct], prefix: str, entries: Mapping[str, Entry]
) -> dict[str, Any]:
    values = {}
    for field in msgspec.structs.fields(struct):
        entry = entries.get(field.name)
        # `node_id: auto` says aloud what happens without one.
        if field.name == "node_id" and _is_auto(entry):
            continue
        if entry is not None and field.name not in _READ_APART:
            values[field.name] = convert(f"{prefix}{field.name}", entry, field.type)
    return values


def _is_auto(entry: Entry | None) -> bool:
    return entry is not None and isinstance(entry.value, str) and entry.value.lower() == "auto"


def _refuse_auto_without_etcd(entry: Entry | None, settings: Settings) -> None:
    if entry is not None and _is_auto(entry) and not settings.etcd_hosts:
        problem = "needs the etcd of disagg_cluster or proxy.metadata_server"
        raise ConfigError(problem, origin=entry.origin, key="node_id", value=show("node_id", entry.value))


def _refuse_contradictions(proxy: ProxySettings, entries: Mapping[str, Entry], warnings: list[str]) -> None:
    for name, problem in find_contradictions(proxy):
        entry = entries[name]
        raise ConfigError(problem, origin=entry.origin, key=f"proxy.{name}", value=show(name, entry.value))
    warnings += [f"{entries[name].origin}: proxy.{name} {problem}" for name, problem in find_useless(proxy)]


def _refuse_not_built(scope: str, entries: Mapping[str, Entry], warnings: list[str]) -> None:
    for name, entry in entries.items():
        key = f"{scope}.{name}" if scope else name
        if name not in not_built_keys(scope):
            continue
        value = parse_yaml(entry.value, origin=entry.origin) if entry.text else entry.value
        row = find_not_built(key, value)
        if row is None:
            continue
        raise ConfigError(refusal(row), origin=entry.origin, key=key, value=show(name, value))


def _note_no_effect(layers: Layers, warnings: list[str]) -> None:
    for name, row in NO_EFFECT_ROWS.items():
        entry = layers.top.get(name)
        if entry is not None and convert(name, entry, row.type) != row.default:
            warnings.append(f"{entry.origin}: {name} = {show(name, entry.value)} has no effect: {row.reason}")
