"""How the proxy shows itself to the workers, and how it knows them: TLS and the key."""

from __future__ import annotations

import ssl
from functools import cached_property
from typing import TYPE_CHECKING

from proxy.config.secrets import parse_token
from proxy.config.watched_file import WatchedFile
from proxy.upstream.client_tls import client_tls

if TYPE_CHECKING:
    from proxy.config.address import WorkerAddress
    from proxy.config.settings import ProxySettings


class WorkerAccess:
    """The same for all workers, legs and probes.

    Args:
        proxy: `worker_tls_*` and `worker_api_key_file`.

    Raises:
        ConfigError: the key cannot be read.
    """

    def __init__(self, proxy: ProxySettings) -> None:
        self._proxy = proxy
        self._key: WatchedFile[str] | None = None
        if proxy.worker_api_key_file is not None:
            self._key = WatchedFile(proxy.worker_api_key_file, parse_token, key="proxy.worker_api_key_file")
        self._line: tuple[str, bytes] = ("", b"")

    @property
    def key_line(self) -> bytes:
        """The `authorization` header line for workers, empty without a key."""
        if self._key is None:
            return b""
        key = self._key.value
        if self._line[0] != key:
            self._line = (key, f"authorization: Bearer {key}\r\n".encode("ascii"))
        return self._line[1]

    @property
    def headers(self) -> dict[str, str]:
        """The same for HTTP client libraries."""
        return {} if self._key is None else {"authorization": f"Bearer {self._key.value}"}

    def tls_for(self, address: WorkerAddress) -> ssl.SSLContext | None:
        """The TLS context for a worker, None for one that speaks plain HTTP."""
        return self.tls if address.scheme == "https" else None

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """Made at its first use: loading the system's certificates takes tens of milliseconds.

        Raises:
            ConfigError: a file cannot be read or is no certificate or key.
        """
        return client_tls(self._proxy, "worker_tls", verify=self._proxy.worker_tls_verify)
