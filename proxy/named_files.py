"""Reads every file that the configuration names, so that a mistake is told before anything listens."""

from __future__ import annotations

from proxy.config.secrets import KeyRing, parse_api_keys, parse_token
from proxy.config.settings import ProxySettings
from proxy.config.watched_file import WatchedFile
from proxy.downstream.tls import check_tls
from proxy.upstream.access import WorkerAccess
from proxy.workers.discovery.etcd_access import access_to


def api_keys(proxy: ProxySettings) -> WatchedFile[KeyRing] | None:
    """The keys of the clients, None when everybody is let in. Raises `ConfigError`."""
    if proxy.api_keys_file is None:
        return None
    return WatchedFile(proxy.api_keys_file, parse_api_keys, key="proxy.api_keys_file")


def admin_token(proxy: ProxySettings) -> WatchedFile[str] | None:
    """The token of the admin listener, None without one. Raises `ConfigError`."""
    if proxy.admin_token_file is None:
        return None
    return WatchedFile(proxy.admin_token_file, parse_token, key="proxy.admin_token_file")


def storage_key(proxy: ProxySettings) -> WatchedFile[str] | None:
    """The token of those who register, None when everybody may. Raises `ConfigError`."""
    if proxy.cluster_storage_key_file is None:
        return None
    return WatchedFile(proxy.cluster_storage_key_file, parse_token, key="proxy.cluster_storage_key_file")


def check_named_files(proxy: ProxySettings) -> None:
    """Read all of them once.

    Raises:
        ConfigError: the first that cannot be read or makes no sense.
    """
    api_keys(proxy)
    admin_token(proxy)
    storage_key(proxy)
    access_to((), proxy)
    check_tls(proxy)
    access = WorkerAccess(proxy)
    if proxy.worker_tls_ca is not None or proxy.worker_tls_certfile is not None:
        _ = access.tls
