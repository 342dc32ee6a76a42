"""How the proxy shows itself to the workers, and how it knows them: TLS and the key."""

from __future__ import annotations

import ssl
from functools import cached_property
from typing import TYPE_CHECKING

from proxy.config.errors import ConfigError
from proxy.config.secrets import parse_token
from proxy.config.watched_file import WatchedFile

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
        proxy = self._proxy
        key = "worker_tls_ca"
        try:
            context = ssl.create_default_context(cafile=proxy.worker_tls_ca)
            if not proxy.worker_tls_verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if proxy.worker_tls_certfile is not None:
                key = "worker_tls_certfile"
                context.load_cert_chain(
                    proxy.worker_tls_certfile, proxy.worker_tls_keyfile, password=_no_password
                )
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"cannot be used for TLS: {reason}", key=f"proxy.{key}", value=getattr(proxy, key)
            ) from None
        return context


def _no_password() -> str:
    """Without this OpenSSL asks on the terminal, and the program hangs."""
    raise ValueError("the private key is encrypted")
