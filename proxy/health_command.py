"""The `health` command: asks a server on this machine how it is, for scripts and for images without curl."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import socket
import ssl
import sys
import time

from proxy.config.settings import Settings

LIVE, READY = "/health/live", "/health"
_SECONDS_PER_ATTEMPT = 5.0
_PAUSE_SECONDS = 0.5
# The address to listen on that means "all" -> the one to ask.
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  (a lookup, nothing is bound)


def add_health_options(parser: argparse.ArgumentParser) -> None:
    """Declare what `serve` does not have."""
    parser.add_argument(
        "--ready", action="store_true", help=f"ask {READY}: could a request be served? (default: {LIVE})"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="keep asking for so long (default: ask once)",
    )


def run_health(settings: Settings, *, ready: bool, wait: float) -> int:
    """Ask until the answer is 200 or `wait` seconds have passed; returns the exit code, 0 or 1.

    The server is found as `serve` finds its address: options, environment, file. `READY` is known to workers too.
    """
    deadline = time.monotonic() + wait
    path = READY if ready else LIVE
    while (problem := _ask(settings, path)) is not None:
        left = deadline - time.monotonic()
        if left <= 0:
            print(f"disagg-proxy: {path} {problem}", file=sys.stderr)
            return 1
        time.sleep(min(left, _PAUSE_SECONDS))
    return 0


def _ask(settings: Settings, path: str) -> str | None:
    """None for an answer 200, else what came in its place."""
    host = _ANY.get(settings.hostname, settings.hostname)
    if settings.proxy.tls_client_ca is not None:
        return _connect(host, settings.port)
    with contextlib.closing(_connection(settings, host)) as connection:
        try:
            connection.request("GET", path)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return f"of {host} port {settings.port} cannot be asked: {error}"
    return None if status == http.client.OK else f"of {host} port {settings.port} answered {status}"


def _connection(settings: Settings, host: str) -> http.client.HTTPConnection:
    if settings.proxy.tls_certfile is None:
        return http.client.HTTPConnection(host, settings.port, timeout=_SECONDS_PER_ATTEMPT)
    # The certificate names the public address, not the one that is asked here.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, settings.port, timeout=_SECONDS_PER_ATTEMPT, context=context)


def _connect(host: str, port: int) -> str | None:
    """All that can be asked without a certificate of the clients' authority."""
    try:
        socket.create_connection((host, port), timeout=_SECONDS_PER_ATTEMPT).close()
    except OSError as error:
        return f"of {host} port {port} cannot be asked: {error}"
    return None
