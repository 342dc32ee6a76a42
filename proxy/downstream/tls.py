"""TLS on the listening side."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from proxy.config.errors import ConfigError

if TYPE_CHECKING:
    from proxy.config.settings import ProxySettings


def tls_options(proxy: ProxySettings) -> dict[str, Any]:
    """uvicorn's options for `tls_certfile`, `tls_keyfile` and `tls_client_ca`; empty without a certificate."""
    if proxy.tls_certfile is None:
        return {}
    return {
        "ssl_certfile": proxy.tls_certfile,
        "ssl_keyfile": proxy.tls_keyfile,
        "ssl_keyfile_password": "",  # an encrypted key is an error, not a question on the terminal
        "ssl_ca_certs": proxy.tls_client_ca,
        "ssl_cert_reqs": ssl.CERT_NONE if proxy.tls_client_ca is None else ssl.CERT_REQUIRED,
    }


def check_tls(proxy: ProxySettings) -> None:
    """Load the files once.

    Raises:
        ConfigError: one of them cannot be read or is no certificate or key.
    """
    if proxy.tls_certfile is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key = "tls_certfile"
    try:
        context.load_cert_chain(proxy.tls_certfile, proxy.tls_keyfile, password="")
        if proxy.tls_client_ca is not None:
            key = "tls_client_ca"
            context.load_verify_locations(proxy.tls_client_ca)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot be used for TLS: {reason}", key=f"proxy.{key}", value=getattr(proxy, key)
        ) from None
