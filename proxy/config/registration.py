"""Reads the keys of workers that register by themselves, and says what follows."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from proxy.config.container import is_loopback
from proxy.config.disagg_cluster import DisaggCluster
from proxy.config.errors import ConfigError
from proxy.config.metadata_server import MetadataServer
from proxy.config.minimal_instances import MinimalInstances
from proxy.config.nested import read_struct
from proxy.config.sections import SECTIONS
from proxy.config.settings import Settings
from proxy.config.values import Entry, convert_mapping, show, without_password
from proxy.config.yaml_file import parse_yaml, read_yaml_file

_CLUSTER = "disagg_cluster"
_ETCD_KEYS = ("etcd_user", "etcd_password_file", "etcd_tls_ca", "etcd_tls_certfile", "etcd_tls_keyfile")


def read_disagg_cluster(entry: Entry | None) -> DisaggCluster | None:
    """Read the mapping; null means that there is none.

    Raises:
        ConfigError: unknown keys, or a uri that is none.
    """
    if entry is None or entry.value is None:
        return None
    given = convert_mapping(_CLUSTER, entry)
    minimal = Entry(given.pop("minimal_instances", None), entry.origin)
    cluster = msgspec.structs.replace(
        read_struct(_CLUSTER, Entry(given, entry.origin), DisaggCluster),
        minimal_instances=read_struct(f"{_CLUSTER}.minimal_instances", minimal, MinimalInstances),
    )
    try:
        cluster.check_uri()
    except ValueError as error:
        key, shown = f"{_CLUSTER}.cluster_uri", show("cluster_uri", without_password(cluster.cluster_uri))
        raise ConfigError(str(error), origin=entry.origin, key=key, value=shown) from None
    return cluster


def read_metadata_server(key: str, entry: Entry | None) -> MetadataServer | None:
    """Read the mapping, or the file that a text names; null means that there is none.

    `key` is its dotted path. Raises `ConfigError`.
    """
    if entry is None:
        return None
    value = parse_yaml(entry.value, origin=entry.origin) if entry.text else entry.value
    if value is None:
        return None
    if isinstance(value, str):
        return read_struct("metadata_server", Entry(read_yaml_file(value), value), MetadataServer)
    return read_struct(key, Entry(value, entry.origin), MetadataServer)


def without_urls(settings: Settings) -> tuple[Settings, list[str]]:
    """As upstream: workers that register are used instead of those of the sections.

    Returns:
        The configuration in force and warnings.
    """
    warnings: list[str] = []
    if settings.disagg_cluster is None and settings.proxy.metadata_server is None:
        return settings, warnings
    for name in SECTIONS:
        section = getattr(settings, name)
        if section.urls:
            warnings.append(f"{name}.urls is not used: the workers register by themselves")
            section = msgspec.structs.replace(section, urls=(), num_instances=0)
            settings = msgspec.structs.replace(settings, **{name: section})
    return settings, warnings


def registration_warnings(settings: Settings) -> Iterator[str]:
    """Sentences about what will not work, has no effect, or is open to everybody."""
    cluster, proxy = settings.disagg_cluster, settings.proxy
    if not settings.etcd_hosts:
        for name in _ETCD_KEYS:
            if getattr(proxy, name) is not None:
                yield f"proxy.{name} has no effect: no etcd is configured"
    if cluster is not None and not 0 < cluster.heartbeat_interval_sec < cluster.inactive_timeout_sec:
        yield (
            f"with {_CLUSTER}.heartbeat_interval_sec = {cluster.heartbeat_interval_sec} and inactive_timeout_sec = "
            f"{cluster.inactive_timeout_sec} workers send no heartbeats and disappear"
        )
    if cluster is not None and cluster.embedded:
        yield from _storage_warnings(settings, cluster)
    elif proxy.cluster_storage_key_file is not None:
        yield "proxy.cluster_storage_key_file has no effect: the proxy serves no cluster storage"


def _storage_warnings(settings: Settings, cluster: DisaggCluster) -> Iterator[str]:
    if settings.port not in (0, cluster.own_port):
        yield (
            f"{_CLUSTER}.cluster_uri names port {cluster.own_port}: the storage is served at the proxy's own port, "
            f"{settings.port}"
        )
    if settings.proxy.cluster_storage_key_file is not None:
        yield (
            "workers need the key in proxy.cluster_storage_key_file to register; trtllm-serve has no option that "
            "makes it send one"
        )
    elif settings.proxy.api_keys_file is not None:
        yield (
            "workers need one of the keys in proxy.api_keys_file to register; trtllm-serve has no option that makes "
            "it send one: use an etcd"
        )
    elif not is_loopback(settings.hostname):
        yield (
            "whoever reaches the port can register as a worker and gets requests: let only the workers' network and "
            "your clients reach it, or use an etcd"
        )
