"""Workers whose addresses the domain name system knows. Needs the extra `dns`: getaddrinfo tells no time to live, knows
no SRV records and holds a thread while it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import NamedTuple

import dns.asyncresolver
import dns.exception
import dns.message
import dns.name
import dns.nameserver
import dns.rdata
import dns.rdtypes.IN.SRV
import dns.resolver

from proxy.config.discovery.dns import DnsEntry, parse_nameserver
from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.listing import list_workers
from proxy.workers.discovery.source import SourceLost

# Answers up to this size come by UDP, longer ones by TCP (DNS flag day 2020).
_UDP_BYTES = 1232
_RECORDS = {"ipv4": ("A",), "ipv6": ("AAAA",), "auto": ("A", "AAAA"), "both": ("A", "AAAA")}

Place = tuple[str, int]


class _Found(NamedTuple):
    """The records of one kind, none if the name does not exist, and for how many seconds they hold."""

    records: list[dns.rdata.Rdata]
    seconds: float


class _Answer(NamedTuple):
    """Hosts and ports, and for how many seconds they hold."""

    places: list[Place]
    seconds: float


class DnsSource:
    """See `proxy.workers.discovery.source.Source`.

    Args:
        entry: what is looked up.
        sleep: waits for some seconds.
    """

    def __init__(self, entry: DnsEntry, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.name = entry.name
        self.longest_pause = entry.longest
        self._entry = entry
        self._sleep = sleep

    async def changes(self) -> AsyncGenerator[Sequence[ListedWorker], None]:
        """See `Source`."""
        entry = self._entry
        resolver = _resolver(entry)
        while True:
            answer = await (self._targets(resolver) if entry.srv is not None else self._addresses(resolver))
            if not answer.places and entry.when_empty == "keep":
                raise SourceLost(f"{entry.srv or entry.host} does not exist or has no records")
            yield [
                worker
                for host, port in sorted(set(answer.places))
                for worker in list_workers(entry, host, port)
            ]
            await self._sleep(min(max(answer.seconds, entry.shortest), entry.longest))

    async def _targets(self, resolver: dns.asyncresolver.Resolver) -> _Answer:
        entry = self._entry
        found = await self._ask(resolver, str(entry.srv), "SRV")
        records = [each for each in found.records if isinstance(each, dns.rdtypes.IN.SRV.SRV)]
        # The target "." says that there is no such service.
        records = [each for each in records if len(each.target.labels) > 1]
        lowest = min((each.priority for each in records), default=0)
        places = [
            (each.target.to_text(omit_final_dot=True), each.port)
            for each in records
            if each.priority == lowest and each.port
        ]
        return _Answer(places, found.seconds)

    async def _addresses(self, resolver: dns.asyncresolver.Resolver) -> _Answer:
        entry = self._entry
        asked = (self._ask(resolver, str(entry.host), record) for record in _RECORDS[entry.family])
        answers = await asyncio.gather(*asked, return_exceptions=True)
        if entry.family == "auto" and not isinstance(answers[0], BaseException) and answers[0].records:
            # Some name servers cannot be asked for addresses that nobody has.
            answers = answers[:1]
        places: list[Place] = []
        seconds = float("inf")
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            places += [(each.to_text(), entry.port or 0) for each in answer.records]
            if answer.records or not places:
                seconds = min(seconds, answer.seconds)
        return _Answer(places, seconds)

    async def _ask(self, resolver: dns.asyncresolver.Resolver, name: str, record: str) -> _Found:
        try:
            answer = await resolver.resolve(
                name, record, raise_on_no_answer=False, search=True, lifetime=self._entry.timeout
            )
            return _Found(list(answer.rrset or ()), answer.chaining_result.minimum_ttl)
        except dns.resolver.NXDOMAIN as missing:
            responses: dict[dns.name.Name, dns.message.QueryMessage] = missing.kwargs["responses"]
            return _Found([], min(each.resolve_chaining().minimum_ttl for each in responses.values()))
        except (dns.exception.DNSException, OSError) as error:
            raise SourceLost(f"{name} {record}: {' '.join(str(error).split())}") from None


def _resolver(entry: DnsEntry) -> dns.asyncresolver.Resolver:
    try:
        resolver = dns.asyncresolver.Resolver(configure=not entry.nameservers)
    except (dns.exception.DNSException, OSError) as error:
        raise SourceLost(f"/etc/resolv.conf: {error}") from None
    if entry.nameservers:
        resolver.nameservers = [
            dns.nameserver.Do53Nameserver(*parse_nameserver(each)) for each in entry.nameservers
        ]
    resolver.use_edns(0, 0, _UDP_BYTES)
    return resolver
