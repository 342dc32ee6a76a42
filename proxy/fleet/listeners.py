"""The listening sockets of a fleet: a set per process on one port, among which the kernel spreads connections."""

from __future__ import annotations

import errno
import socket

BACKLOG = 4096
"""Connections that may wait, per socket; the kernel caps it at net.core.somaxconn."""

_Address = tuple[socket.AddressFamily, str]


class Listeners:
    """Knows the addresses and opens sockets on them.

    Args:
        hostname: name or address; a name may have several addresses (`localhost`), and each process listens on all.
        port: 0 takes a free one.

    Raises:
        OSError: the name is unknown or the port is in use.
    """

    def __init__(self, hostname: str, port: int) -> None:
        self.port = port
        self._addresses = self._usable(_resolve(hostname))

    def open(self) -> list[socket.socket]:
        """A set of sockets for one process, listening, sharing the port with the other sets.

        Raises:
            OSError.
        """
        sockets: list[socket.socket] = []
        try:
            for family, host in self._addresses:
                sockets.append(_bound(family, host, self.port, shared=True))
                sockets[-1].listen(BACKLOG)
        except OSError:
            for sock in sockets:
                sock.close()
            raise
        return sockets

    def _usable(self, addresses: list[_Address]) -> list[_Address]:
        """Check that nobody listens yet: with a shared port a second fleet would quietly take half of the clients."""
        usable: list[_Address] = []
        refused: OSError | None = None
        held: list[socket.socket] = []
        try:
            for family, host in addresses:
                try:
                    sock = _bound(family, host, self.port, shared=False)
                except OSError as error:
                    # `localhost` may name ::1 where there is no IPv6.
                    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                    refused = error
                    continue
                held.append(sock)
                self.port = sock.getsockname()[1]
                usable.append((family, host))
        finally:
            for sock in held:
                sock.close()
        if not usable and refused is not None:
            raise refused
        return usable


def _resolve(hostname: str) -> list[_Address]:
    found = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _bound(family: socket.AddressFamily, host: str, port: int, *, shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as asyncio does
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from None
    sock.setblocking(False)
    return sock
