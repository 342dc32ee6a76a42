"""The sources of workers that register by themselves, as upstream's keys describe them."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.config.disagg_cluster import DisaggCluster
from proxy.config.metadata_server import MetadataServer
from proxy.config.settings import ProxySettings, Settings
from proxy.upstream.access import WorkerAccess
from proxy.workers.discovery.embedded import EmbeddedSource
from proxy.workers.discovery.etcd import EtcdSource
from proxy.workers.discovery.etcd_access import access_to
from proxy.workers.discovery.metadata import MetadataSource
from proxy.workers.discovery.source import Source


def registration_sources(settings: Settings) -> Iterator[Source]:
    """Those of `disagg_cluster` and of `-m`, if there are any.

    Raises:
        ConfigError: a file that the configuration names for them cannot be used.
    """
    if settings.disagg_cluster is not None:
        yield _cluster_source(settings.disagg_cluster, settings.proxy)
    if settings.proxy.metadata_server is not None:
        yield _metadata_source(settings.proxy.metadata_server, settings.proxy)


def _cluster_source(cluster: DisaggCluster, proxy: ProxySettings) -> Source:
    if cluster.embedded:
        return EmbeddedSource(cluster.cluster_name)
    access = access_to(cluster.etcd_hosts, proxy)
    return EtcdSource(access, cluster.cluster_name, keep_seconds=cluster.inactive_timeout_sec)


def _metadata_source(server: MetadataServer, proxy: ProxySettings) -> Source:
    return MetadataSource(
        access_to((server.etcd_host,), proxy),
        WorkerAccess(proxy),
        refresh_interval=server.refresh_interval,
        health_check_timeout=server.health_check_timeout,
    )
