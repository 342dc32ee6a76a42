"""One worker as the proxy sees it."""

from __future__ import annotations

from enum import StrEnum

from proxy.config.address import WorkerAddress
from proxy.upstream.pool import ConnectionPool


class Role(StrEnum):
    """What a worker does for a request; `trtllm-serve` workers can do either."""

    CONTEXT = "context"
    GENERATION = "generation"


class Worker:
    """A worker in one role.

    Attributes:
        ready: answered its health probes; only ready workers get requests.
        in_flight: legs that are running on it, kept by `Reservation` alone.
        version, model: as the worker's last probe told, or None.
    """

    __slots__ = ("_heads", "address", "in_flight", "model", "pool", "ready", "role", "version")

    def __init__(self, address: WorkerAddress, role: Role, pool: ConnectionPool) -> None:
        self.address = address
        self.role = role
        self.pool = pool
        self.ready = False
        self.in_flight = 0
        self.version: str | None = None
        self.model: str | None = None
        self._heads: dict[bytes, bytes] = {}

    def request_head(self, target: bytes) -> bytes:
        """The beginning of a POST's head, up to the headers that differ between requests.

        Args:
            target: path and query string.
        """
        head = self._heads.get(target)
        if head is None:
            head = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n" % (
                target,
                self.address.authority,
            )
            if b"?" not in target:  # queries are the clients' and would fill the table
                self._heads[target] = head
        return head
