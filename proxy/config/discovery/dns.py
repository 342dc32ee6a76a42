"""`type: dns`: workers whose addresses the domain name system knows."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from proxy.config.discovery.role_entry import RoleEntry
from proxy.config.scalars import Name, PositiveSeconds

_DNS_PORT = 53


class DnsEntry(RoleEntry, frozen=True, kw_only=True, tag="dns"):
    """Either `host` and `port` (A and AAAA records) or `srv` (SRV records, RFC 2782).

    Attributes:
        host: each of its addresses is a worker.
        port: of all of them.
        srv: each target of the lowest priority is a worker, known by its name.
        family: `auto` takes the IPv4 addresses, if there are any, else the IPv6 ones; a host with both is one worker.
        nameservers: `address` or `address:port`; those of /etc/resolv.conf when empty.
        shortest, longest: seconds; bounds of the records' time to live, after which they are looked up again.
        timeout: seconds for one look-up, all name servers and attempts together.
        when_empty: what it means that a name does not exist or has no records: a failure, or that there are no workers.
    """

    host: Name | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    srv: Name | None = None
    family: Literal["auto", "ipv4", "ipv6", "both"] = "auto"
    nameservers: tuple[Name, ...] = ()
    shortest: PositiveSeconds = 1.0
    longest: PositiveSeconds = 30.0
    timeout: PositiveSeconds = 5.0
    when_empty: Literal["keep", "remove"] = "keep"

    def __post_init__(self) -> None:
        """Raises `ValueError`."""
        if (self.host is None) == (self.srv is None):
            raise ValueError("expected either host or srv")
        if (self.host is None) != (self.port is None):
            raise ValueError("host needs port, and srv has its own ports")
        if self.shortest > self.longest:
            raise ValueError("shortest is longer than longest")
        for each in self.nameservers:
            parse_nameserver(each)

    @property
    def default_name(self) -> str:
        """See `SourceEntry`: several names are the rule."""
        return f"dns:{self.srv or self.host}"


def parse_nameserver(text: str) -> tuple[str, int]:
    """Read `address`, `address:port` or `[ipv6]:port`; raises `ValueError` with a sentence."""
    try:
        return str(ipaddress.ip_address(text)), _DNS_PORT
    except ValueError:
        pass
    try:
        parts = urlsplit(f"//{text}")
        return str(ipaddress.ip_address(parts.hostname or "")), parts.port or _DNS_PORT
    except ValueError:
        raise ValueError(f'{text!r} is not the address of a name server such as "10.0.0.10:53"') from None
