"""The metadata server, `-m` of `trtllm-serve disaggregated`: an etcd in which the workers put keys when they start."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from proxy.config.scalars import Name, PositiveSeconds


class MetadataServer(msgspec.Struct, frozen=True):
    """The keys and defaults of the file are upstream's.

    Attributes:
        health_check_timeout: seconds for one of a worker's two attempts to answer.
        refresh_interval: seconds between two looks at the keys.
    """

    server_type: Literal["etcd"]
    hostname: Name = "localhost"
    port: Annotated[int, Meta(ge=1, le=65535)] = 2379
    health_check_timeout: PositiveSeconds = 5.0
    refresh_interval: PositiveSeconds = 10.0

    @property
    def etcd_host(self) -> str:
        """`host:port`."""
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{host}:{self.port}"
