"""Where the admin listener listens: the parsed form of `proxy.admin_listen`."""

from __future__ import annotations

import msgspec

from proxy.config.address import parse_worker_address
from proxy.config.container import is_loopback


class ListenAddress(msgspec.Struct, frozen=True):
    """A TCP address, or a Unix socket when `unix_path` is set. Port 0 takes a free one."""

    host: str
    port: int
    unix_path: str | None = None

    @property
    def private(self) -> bool:
        """Only this machine reaches it."""
        return self.unix_path is not None or is_loopback(self.host)


def parse_listen_address(text: str) -> ListenAddress:
    """Read `host:port`, `[ipv6]:port` or `unix:/path`.

    Raises:
        ValueError: one sentence that says what is wrong.
    """
    problem = "expected host:port, [ipv6]:port or unix:/path"
    if "://" in text:
        raise ValueError(problem)
    host, colon, port = text.rpartition(":")
    # A worker's port is never 0, a listener's may be.
    if colon and port.strip("0") == "" and port and not text.startswith("unix:"):
        parsed = parse_worker_address(f"{host}:1")
        return ListenAddress(parsed.host, 0)
    try:
        parsed = parse_worker_address(text)
    except ValueError:
        raise ValueError(problem) from None
    return ListenAddress(parsed.host, parsed.port, parsed.unix_path)


def check_listen_address(text: str) -> str:
    """Return the text of a valid address; raises `ValueError`."""
    parse_listen_address(text)
    return text
