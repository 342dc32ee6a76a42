"""Which etcd a configuration uses, and how to get in."""

from __future__ import annotations

from proxy.config.settings import ProxySettings, Settings
from proxy.config.watched_file import WatchedFile
from proxy.upstream.client_tls import client_tls
from proxy.workers.discovery.etcd_client import EtcdAccess


def etcd_access(settings: Settings) -> EtcdAccess | None:
    """Where the workers register, or None when it is no etcd.

    Raises:
        ConfigError: a file that the configuration names cannot be used.
    """
    hosts = settings.etcd_hosts
    return access_to(hosts, settings.proxy) if hosts else None


def access_to(hosts: tuple[str, ...], proxy: ProxySettings) -> EtcdAccess:
    """Access to an etcd; TLS is spoken when an authority or a certificate for it is configured.

    Args:
        hosts: `host:port` of each member.
        proxy: `etcd_*`.

    Raises:
        ConfigError: a file that the configuration names cannot be used.
    """
    secure = proxy.etcd_tls_ca is not None or proxy.etcd_tls_certfile is not None
    tls = client_tls(proxy, "etcd_tls") if secure else None
    scheme = "https" if secure else "http"
    password = None
    if proxy.etcd_password_file is not None:
        key = "proxy.etcd_password_file"
        password = WatchedFile(proxy.etcd_password_file, _parse_password, key=key).value
    return EtcdAccess(tuple(f"{scheme}://{host}" for host in hosts), tls, proxy.etcd_user, password)


def _parse_password(text: str) -> str:
    password = text.rstrip("\r\n")
    if not password or "\n" in password:
        raise ValueError("expected one line")
    return password
