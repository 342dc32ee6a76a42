"""A small name server (dnslib) whose records a test changes; it answers over UDP and TCP on loopback."""

from __future__ import annotations

import threading
from typing import Any

from dnslib import AAAA, QTYPE, RCODE, RR, SOA, SRV, A
from dnslib.server import DNSLogger, DNSServer

# What is longer is asked for again over TCP.
_DATAGRAM = 512
_KINDS = {"A": A, "AAAA": AAAA}


class Zone:
    """`records`: (name, type) -> texts; an SRV record is `priority weight port target`. Unknown names do not exist.

    `ttl` is theirs, `negative_ttl` that of answers without records. `code` answers everything with an error.
    Those in `silent` (names or types) get no answer at all.
    """

    def __init__(self, records: dict[tuple[str, str], list[str]]) -> None:
        self.records = records
        self.ttl = 30
        self.negative_ttl = 7
        self.code: str | None = None
        self.silent: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.tcp_asked = 0
        self._servers: list[DNSServer] = []
        self._lock = threading.Lock()
        self.port = 0

    def resolve(self, request: Any, handler: Any) -> Any:
        """Called by dnslib in a thread."""
        name = str(request.q.qname).rstrip(".")
        kind = QTYPE[request.q.qtype]
        with self._lock:
            self.asked.append((name, kind))
            self.tcp_asked += handler.protocol == "tcp"
        if self.silent & {name, kind}:
            raise TimeoutError
        reply = request.reply()
        if self.code is not None:
            reply.header.rcode = getattr(RCODE, self.code)
            return reply
        for text in self.records.get((name, kind), ()):
            reply.add_answer(RR(request.q.qname, request.q.qtype, ttl=self.ttl, rdata=_record(kind, text)))
        if not reply.rr:
            if not any(known == name for known, _ in self.records):
                reply.header.rcode = RCODE.NXDOMAIN
            times = (1, 3600, 3600, 3600, self.negative_ttl)
            soa = SOA("ns.test", "admin.test", times)
            reply.add_auth(RR("test", QTYPE.SOA, ttl=self.negative_ttl, rdata=soa))
        if handler.protocol == "udp" and len(reply.pack()) > _DATAGRAM:
            reply = request.reply()
            reply.header.tc = 1
        return reply

    def start(self) -> Zone:
        """Listen, on the same port as before if there was one."""
        if self.port:
            self._listen(self.port)
            return self
        for _ in range(20):
            try:
                self._listen(0)
                return self
            except OSError:  # what is free for one protocol may be in use for the other
                self.stop()
        raise AssertionError("no port is free for both protocols")

    def _listen(self, port: int) -> None:
        logger = DNSLogger("-request,-reply,-truncated,-error", logf=lambda _: None)
        for tcp in (True, False):
            server = DNSServer(self, address="127.0.0.1", port=port, tcp=tcp, logger=logger)
            server.server.handle_error = lambda *_: None  # type: ignore[method-assign]
            port = self.port = server.server.server_address[1]
            threading.Thread(target=server.server.serve_forever, args=(0.01,), daemon=True).start()
            self._servers.append(server)

    def stop(self) -> None:
        """Be down."""
        for server in self._servers:
            server.server.shutdown()
            server.server.server_close()
        self._servers = []


def _record(kind: str, text: str) -> Any:
    if kind == "SRV":
        priority, weight, port, target = text.split()
        return SRV(int(priority), int(weight), int(port), target)
    return _KINDS[kind](text)
