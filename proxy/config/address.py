"""Where one worker listens: the parsed form of one entry of `urls`."""

from __future__ import annotations

import ipaddress
import re
from functools import cached_property
from typing import Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
# sun_path holds 108 bytes, the last of which is the NUL (unix(7)).
_LONGEST_UNIX_PATH = 107
_FORMS = "expected host:port, http(s)://host:port, [ipv6]:port or unix:/path"


class WorkerAddress(msgspec.Struct, frozen=True, dict=True):
    """Address of one worker; equal addresses are equal workers, so it serves as a dictionary key.

    `host` is a lower-case name or an address without brackets, `port` 1 to 65535. With `unix_path` set the
    worker listens on that socket, `host` is "localhost" and `port` is 0.
    """

    scheme: Literal["http", "https"]
    host: str
    port: int
    unix_path: str | None = None

    @cached_property
    def authority(self) -> bytes:
        """Value of the Host header (RFC 9110 section 7.2)."""
        if self.unix_path is not None:
            return b"localhost"
        return f"{self._bracketed_host}:{self.port}".encode("ascii")

    @cached_property
    def text(self) -> str:
        """The address as users see it: `host:port`, `[::1]:8001`, `https://h:443`, `unix:/path`."""
        if self.unix_path is not None:
            return f"unix:{self.unix_path}"
        prefix = "https://" if self.scheme == "https" else ""
        return f"{prefix}{self._bracketed_host}:{self.port}"

    @cached_property
    def base_url(self) -> str:
        """`scheme://authority`, as HTTP client libraries want it."""
        return f"{self.scheme}://{self.authority.decode('ascii')}"

    @property
    def _bracketed_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return self.text


def parse_worker_address(text: str) -> WorkerAddress:
    """Read one worker url.

    Accepts `host:port`, `http(s)://host:port` (a trailing slash is ignored), `[::1]:8001` and `unix:/path`.
    Names are lower-cased and IPv6 addresses shortened, so that two spellings of one worker compare equal.
    Raises `ValueError` with one sentence that says what is wrong.
    """
    # urlsplit drops tabs and line breaks silently.
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError("a worker url contains no blanks or control characters")
    if text.startswith("unix:"):
        return _parse_unix(text)
    scheme: Literal["http", "https"] = "http"
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        if "[" not in parts.netloc and parts.netloc.count(":") > 1 and "@" not in parts.netloc:
            raise ValueError("an IPv6 address stands in brackets")
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{error}; {_FORMS}") from None
    if parts.scheme not in {"http", "https"}:
        raise ValueError(f"unknown scheme {parts.scheme!r}; {_FORMS}")
    if parts.scheme == "https":
        scheme = "https"
    if parts.username is not None or parts.password is not None:
        raise ValueError("user names and passwords are not supported in worker urls")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("a worker url has no path, query or fragment")
    host = _parse_host(parts)
    if port is None:
        raise ValueError(f"the port is missing; {_FORMS}")
    if port == 0:
        raise ValueError("the port must be between 1 and 65535")
    return WorkerAddress(scheme, host, port)


def _parse_host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if "[" in parts.netloc:
        if "%" in host:
            raise ValueError("scope ids of IPv6 addresses are not supported")
        # urlsplit has checked it, except for the future forms of RFC 3986 ("[v1.x]").
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            raise ValueError(f"{host!r} is not an IPv6 address") from None
    if not _HOST_NAME.fullmatch(host):
        raise ValueError(
            f"{host!r} is not a host name; {_FORMS}" if host else f"the host is missing; {_FORMS}"
        )
    return host


def _parse_unix(text: str) -> WorkerAddress:
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = path.removeprefix("//")
    if not path.startswith("/"):
        raise ValueError("a Unix socket needs an absolute path, for example unix:/run/worker.sock")
    if len(path.encode()) > _LONGEST_UNIX_PATH or "\0" in path:
        raise ValueError(f"the path of a Unix socket has at most {_LONGEST_UNIX_PATH} bytes")
    return WorkerAddress("http", "localhost", 0, path)
