"""Health probes that cost little: one kept connection of the proxy's own worker client per worker.

A probe comes every second and workers keep idle connections for 5 s, so the connection serves again and again. One
that was closed meanwhile is replaced within the same probe.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from time import perf_counter
from typing import Any

import msgspec

from proxy.config.address import WorkerAddress
from proxy.errors import ConnectionBroken, InternalFault, LegTimeout, ProxyError, Retry
from proxy.upstream.access import WorkerAccess
from proxy.upstream.connection import Answer, WorkerConnection
from proxy.upstream.head import ResponseHead
from proxy.upstream.pool import ConnectionPool
from proxy.workers.probe import batch_size_of, models_of, starting_code, version_of

# The answers are small; more is not read, so that a wrong server cannot fill the memory.
_LONGEST_BODY = 256 * 1024
_LONGEST_DETAIL = 120


class Finding(Enum):
    """What a probe found."""

    HEALTHY = auto()
    LOADING = auto()
    """It answers, but still loads its model."""
    UNHEALTHY = auto()
    """It answers otherwise, or cannot be reached."""
    SILENT = auto()
    """It did not answer in time."""


class Ping(msgspec.Struct, frozen=True):
    """The result of one probe: `seconds` until the answer, `detail` says what is wrong."""

    finding: Finding
    seconds: float = 0.0
    detail: str = ""


class Pinger:
    """Probes one worker. To be made inside the event loop.

    Args:
        address: of the worker.
        timeout: seconds for one probe, connecting included.
        access: TLS and key for the worker; plain when None.

    Attributes:
        unanswered: questions, beside the pings, that got no answer at all. A 404 is one.
    """

    def __init__(self, address: WorkerAddress, *, timeout: float, access: WorkerAccess | None = None) -> None:
        self._address = address
        self._timeout = timeout
        self._access = access
        self.unanswered = 0
        tls = access.tls_for(address) if access is not None else None
        self._connections = ConnectionPool(address, connect_timeout=0, tls=tls)

    async def ping(self, *, fresh: bool = False) -> Ping:
        """Ask for `/health`; never raises (but can be cancelled).

        Args:
            fresh: over a new connection.
        """
        began = perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._get(b"/health", fresh=fresh)
        except (TimeoutError, LegTimeout):
            return Ping(Finding.SILENT, detail=f"no answer within {self._timeout:g} s")
        except ProxyError as error:
            return Ping(Finding.UNHEALTHY, detail=error.message)
        seconds = perf_counter() - began
        status = answer.head.status
        if 200 <= status < 300:
            return Ping(Finding.HEALTHY, seconds)
        if status == 503 and _says_starting(answer):
            return Ping(Finding.LOADING, seconds)
        body = " ".join(answer.body[:_LONGEST_DETAIL].decode("utf-8", "replace").split())
        return Ping(Finding.UNHEALTHY, seconds, f"status {status}: {body}")

    async def identify(self) -> tuple[str | None, tuple[str, ...]]:
        """The worker's version and models; None and empty where it does not tell. Never raises."""
        return version_of(await self._json(b"/version")), models_of(await self._json(b"/v1/models"))

    async def batch_size(self) -> int | None:
        """The `max_batch_size` of the worker's `/server_info`, None where it does not tell. Never raises."""
        return batch_size_of(await self._json(b"/server_info"))

    async def document(self, path: bytes, longest: int) -> bytes | None:
        """The body of a GET if it is answered with 200 in time. Never raises.

        Args:
            path: of the document.
            longest: bytes; a longer one is not read.
        """
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._get(path, longest=longest)
        except (ProxyError, TimeoutError):
            self.unanswered += 1
            return None
        return answer.body if answer.head.status == 200 and answer.body else None

    async def close(self) -> None:
        """Close the connection."""
        await self._connections.close()

    async def _json(self, path: bytes) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._get(path)
        except (ProxyError, TimeoutError):
            self.unanswered += 1
            return None
        try:
            return msgspec.json.decode(answer.body) if answer.head.status == 200 else None
        except (msgspec.DecodeError, RecursionError):
            return None  # the worker is healthy; what it does not tell stays unknown

    async def _get(self, path: bytes, *, fresh: bool = False, longest: int = _LONGEST_BODY) -> Answer:
        request = b"GET %b HTTP/1.1\r\nhost: %b\r\naccept: */*\r\n%b\r\n" % (
            path,
            self._address.authority,
            self._access.key_line if self._access is not None else b"",
        )
        connection = self._connections.take_idle()
        if connection is not None and not fresh:
            try:
                return await _exchange(connection, request, longest)
            except ConnectionBroken as error:
                # The worker closed it; anything else is a finding.
                if error.retry is not Retry.REUSED_ONLY:
                    raise
        elif connection is not None:
            connection.close()
        attempt = self._connections.connect()
        try:
            connection = await attempt.future
        except BaseException:
            attempt.give_up()
            raise
        return await _exchange(connection, request, longest)


async def _exchange(connection: WorkerConnection, request: bytes, longest: int) -> Answer:
    exchange = connection.send((request,))
    head = await connection.head()
    if _is_small(head, longest):
        return await connection.rest()
    # An answer without a length, or a huge one: its status says enough.
    connection.abort(exchange, InternalFault("not read"))
    return Answer(head, b"")


def _is_small(head: ResponseHead, longest: int) -> bool:
    length = head.get(b"content-length")
    return length is not None and length.isdigit() and int(length) <= longest


def _says_starting(answer: Answer) -> bool:
    """See `proxy.workers.probe.is_starting`."""
    state = answer.head.get(b"x-trtllm-server-state")
    return (state is not None and state.lower() == b"starting") or starting_code(answer.body)
