"""TLS of the proxy as a client: of the workers, or of an etcd."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from proxy.config.errors import ConfigError

if TYPE_CHECKING:
    from proxy.config.settings import ProxySettings


def client_tls(proxy: ProxySettings, prefix: str, *, verify: bool = True) -> ssl.SSLContext:
    """A context; making one takes tens of milliseconds if the system's certificates are loaded.

    Args:
        proxy: `<prefix>_ca` (None: the system's authorities), `<prefix>_certfile` and `<prefix>_keyfile`.
        prefix: of these keys.
        verify: check the server's certificate.

    Raises:
        ConfigError: a file cannot be read or is no certificate or key.
    """
    key = f"{prefix}_ca"
    try:
        context = ssl.create_default_context(cafile=getattr(proxy, key))
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate = getattr(proxy, f"{prefix}_certfile")
        if certificate is not None:
            key = f"{prefix}_certfile"
            context.load_cert_chain(certificate, getattr(proxy, f"{prefix}_keyfile"), password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        problem = f"cannot be used for TLS: {reason}"
        raise ConfigError(problem, key=f"proxy.{key}", value=getattr(proxy, key)) from None
    return context


def _no_password() -> str:
    """Without this OpenSSL asks on the terminal, and the program hangs."""
    raise ValueError("the private key is encrypted")
