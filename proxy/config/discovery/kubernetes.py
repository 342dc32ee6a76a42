"""`type: kubernetes`: workers that are the endpoints of a Service."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from proxy.config.discovery.role_entry import RoleEntry
from proxy.config.scalars import Name, PositiveSeconds

CREDENTIALS = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds its service account (Kubernetes documentation, "Accessing the Kubernetes API from a Pod")."""


class KubernetesEntry(RoleEntry, frozen=True, kw_only=True, tag="kubernetes"):
    """The EndpointSlices of one Service.

    Attributes:
        service: its name.
        namespace: its namespace; the proxy's own when unset.
        port: a name of the Service's ports or a number; may be left out when it has one port.
        family: which address of a pod counts; `auto` is IPv4, else IPv6, else the name.
        domain: what becomes the label `domain` (`proxy.placement`), nothing when unset.
        node_label: instead of `domain`: the label of a pod's node that becomes it.
        api: url of the API server; the one that the pod's environment names when unset.
        credentials: directory with `token`, `ca.crt` and `namespace`.
        relist: seconds after which everything is read again, whatever was heard meanwhile.
        watch: seconds after which the API server is asked to end a watch, which shows that it is there.
    """

    service: Name
    namespace: Name | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | Name | None = None
    family: Literal["auto", "ipv4", "ipv6"] = "auto"
    domain: Literal["zone", "node"] | None = None
    node_label: Name | None = None
    api: Name | None = None
    credentials: Name = CREDENTIALS
    relist: PositiveSeconds = 300.0
    watch: PositiveSeconds = 60.0

    def __post_init__(self) -> None:
        """Raises `ValueError`."""
        if self.domain is not None and self.node_label is not None:
            raise ValueError("domain and node_label both say what the domain is")
        if self.api is not None:
            parts = urlsplit(self.api)
            if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
                raise ValueError("api is not a url such as https://10.0.0.1:443")

    @property
    def default_name(self) -> str:
        """See `SourceEntry`: several Services are the rule."""
        return f"kubernetes:{self.service}"
