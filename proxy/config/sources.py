"""Lays the YAML file, the environment and the command line over each other, key by key.

Nothing is converted here; every value keeps its origin for error messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.config.errors import ConfigError
from proxy.config.not_built import NO_EFFECT_ROWS, not_built_keys
from proxy.config.settings import ProxySettings, RouterSettings, Settings
from proxy.config.suggest import closest
from proxy.config.values import Entry, convert_mapping, show
from proxy.config.yaml_file import read_yaml_file

ENVIRONMENT_PREFIX = "DISAGG_PROXY_"
COMMAND_LINE = "command line"
WARNINGS_KEY = "warnings"
"""Entry of the overrides that holds warnings of the command line instead of a setting."""

SECTION_KEYS = frozenset({"num_instances", "urls", "router"})
_MOST_LISTED_KEYS = 20

UPSTREAM_VARIABLES = {"TRTLLM_DISAGG_BENCHMARK_GEN_ONLY": "benchmark_gen_only"}
"""Switches of `trtllm-serve disaggregated` and the keys of `proxy` that they set."""
_NOT_CONFIGURED = frozenset({"inherited", "warnings", "origin"})
BUILT_TOP_KEYS = frozenset(Settings.__struct_fields__) - _NOT_CONFIGURED
TOP_KEYS = BUILT_TOP_KEYS | not_built_keys("") | NO_EFFECT_ROWS.keys()
# Upstream has a key of this name for its workers.
_OF_WORKERS_TOO = frozenset({"tokenizer"})
PROXY_KEYS = frozenset(ProxySettings.__struct_fields__) | not_built_keys("proxy")
ROUTER_KEYS = frozenset(RouterSettings.__struct_fields__) | not_built_keys("router")

# Kubernetes adds such variables to every pod for every Service, and a Service may well be called
# "disagg-proxy" (documentation of "enableServiceLinks"): DISAGG_PROXY_PORT=tcp://10.0.0.7:8000 is no setting.
_SERVICE_LINK_NAME = re.compile(
    r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_LINK_URL = re.compile(r"(tcp|udp|sctp)://.*")


class Layers(msgspec.Struct, frozen=True):
    """The configured values after precedence: command line, environment, YAML.

    `top` and `proxy` hold known keys, `inherited` the top-level keys that only concern workers.
    """

    top: dict[str, Entry]
    proxy: dict[str, Entry]
    inherited: dict[str, Entry]
    warnings: list[str]


def read_layers(path: str | None, *, overrides: Mapping[str, object], environ: Mapping[str, str]) -> Layers:
    """Read all sources. Raises `ConfigError` for unreadable files and for keys that must be mistakes."""
    layers = Layers({}, {}, {}, [])
    if path is not None:
        _add_file(layers, path)
    _add_environment(layers, environ)
    _add_overrides(layers, overrides)
    return layers


def unknown_key(key: str, name: str, known: frozenset[str], entry: Entry) -> ConfigError:
    """Build the error for an unknown key, with the key that was probably meant."""
    meant = closest(name, known)
    if meant is not None:
        hint = f'; did you mean "{meant}"?'
    elif len(known) <= _MOST_LISTED_KEYS:
        hint = f"; known keys: {', '.join(sorted(known))}"
    else:
        hint = ""
    return ConfigError(f"unknown key{hint}", origin=entry.origin, key=key, value=show(name, entry.value))


def _add_file(layers: Layers, path: str) -> None:
    document = read_yaml_file(path)
    own = convert_mapping("proxy", Entry(document.pop("proxy", None), path))
    for name, value in document.items():
        entry = Entry(value, path)
        if name in TOP_KEYS:
            layers.top[name] = entry
        elif name in PROXY_KEYS - _OF_WORKERS_TOO:
            raise _misplaced(name, f'belongs under "proxy": proxy.{name}', entry)
        elif closest(name, TOP_KEYS | SECTION_KEYS | {"proxy"}) not in {None, name}:
            raise unknown_key(name, name, TOP_KEYS | SECTION_KEYS | {"proxy"}, entry)
        else:
            layers.inherited[name] = entry
    for name, value in own.items():
        entry = Entry(value, path)
        if name in TOP_KEYS:
            raise _misplaced(f"proxy.{name}", f'belongs at the top level, outside "proxy": {name}', entry)
        if name not in PROXY_KEYS:
            raise unknown_key(f"proxy.{name}", name, PROXY_KEYS, entry)
        layers.proxy[name] = entry


def _add_environment(layers: Layers, environ: Mapping[str, str]) -> None:
    for variable, name in UPSTREAM_VARIABLES.items():
        if environ.get(variable, "0") not in ("", "0"):
            layers.proxy[name] = Entry(True, f"environment variable {variable}")
    for variable in sorted(environ):
        value = environ[variable]
        suffix = variable.removeprefix(ENVIRONMENT_PREFIX)
        # An empty variable is how compose files and charts leave one unset.
        if suffix == variable or not value.strip() or _is_service_link(suffix, value):
            continue
        name = suffix.lower()
        entry = Entry(value, f"environment variable {variable}", text=True)
        if suffix != suffix.upper() or not _store(layers, name, entry):
            meant = closest(name, _settable_names())
            if meant is not None:
                raise ConfigError(
                    f'unknown variable; did you mean "{ENVIRONMENT_PREFIX}{meant.upper()}"?',
                    origin=entry.origin,
                )
            layers.warnings.append(f"{entry.origin} is no setting of this program and has no effect")


def _add_overrides(layers: Layers, overrides: Mapping[str, object]) -> None:
    for name, value in overrides.items():
        if name == WARNINGS_KEY:
            layers.warnings.extend(_sentences(value))
        elif not _store(layers, name, Entry(value, COMMAND_LINE)):
            raise unknown_key(name, name, _settable_names(), Entry(value, COMMAND_LINE))


def _store(layers: Layers, name: str, entry: Entry) -> bool:
    if name == "proxy":
        return False
    if name in TOP_KEYS:
        layers.top[name] = entry
    elif name in PROXY_KEYS:
        layers.proxy[name] = entry
    else:
        return False
    return True


def _settable_names() -> frozenset[str]:
    return (TOP_KEYS | PROXY_KEYS) - {"proxy"}


def _is_service_link(suffix: str, value: str) -> bool:
    if _SERVICE_LINK_NAME.fullmatch(suffix):
        return True
    return suffix.endswith("PORT") and _SERVICE_LINK_URL.fullmatch(value) is not None


def _sentences(value: Any) -> list[str]:
    return [str(sentence) for sentence in value]


def _misplaced(key: str, problem: str, entry: Entry) -> ConfigError:
    return ConfigError(problem, origin=entry.origin, key=key, value=show(key.rpartition(".")[2], entry.value))
