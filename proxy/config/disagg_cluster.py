"""`disagg_cluster`: the storage in which the workers register, as `trtllm-serve disaggregated` has it."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from proxy.config.minimal_instances import MinimalInstances
from proxy.config.scalars import Name

_FORMS = "http(s)://host:port of this proxy or etcd://host:port[,etcd://host:port...]"
_DEFAULT_PORTS = {"http": 80, "https": 443}
ETCD_PORT = 2379


class DisaggCluster(msgspec.Struct, frozen=True):
    """The keys and defaults are upstream's; the workers' own configuration has the same mapping.

    Attributes:
        cluster_uri: `http(s)://host:port`: the proxy serves the storage itself, at its own port;
            `etcd://host:port[,etcd://host:port...]`: an etcd.
        cluster_name: part of the workers' keys.
        heartbeat_interval_sec: of the workers, seconds; 0 = they send none.
        inactive_timeout_sec: for which a worker is believed to live after its last sign, seconds.
    """

    cluster_uri: Name
    cluster_name: str = ""
    minimal_instances: MinimalInstances = MinimalInstances()
    heartbeat_interval_sec: int = 5
    inactive_timeout_sec: int = 10

    @property
    def embedded(self) -> bool:
        """Whether the proxy serves the storage itself."""
        return not self.cluster_uri.startswith("etcd://")

    def check_uri(self) -> None:
        """Raises `ValueError` with one sentence if `cluster_uri` is none."""
        _ = self.own_port if self.embedded else self.etcd_hosts

    @property
    def own_port(self) -> int:
        """The port that the workers are told, if the proxy serves the storage itself."""
        uri = urlsplit(self.cluster_uri)
        if uri.scheme not in _DEFAULT_PORTS or not uri.hostname or uri.path.strip("/") or "@" in uri.netloc:
            raise ValueError(f"expected {_FORMS}")
        return uri.port or _DEFAULT_PORTS[uri.scheme]

    @property
    def etcd_hosts(self) -> tuple[str, ...]:
        """`host:port` of each member of the etcd; empty if there is none."""
        return () if self.embedded else tuple(map(_etcd_host, self.cluster_uri.split(",")))


def _etcd_host(text: str) -> str:
    """`host:port` of one uri. Raises `ValueError`."""
    uri = urlsplit(text)
    if "@" in uri.netloc:
        raise ValueError("has no place for passwords: use proxy.etcd_user and proxy.etcd_password_file")
    if uri.scheme != "etcd" or not uri.hostname or uri.path.strip("/"):
        raise ValueError(f"expected {_FORMS}")
    return uri.netloc if uri.port else f"{uri.netloc.rstrip(':')}:{ETCD_PORT}"
