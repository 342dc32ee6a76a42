"""The connections to one worker.

Idle connections are used most recently used first, so that a burst's surplus ages and is closed before the worker
does it (uvicorn in `trtllm-serve` closes after 5 s; a request written at that very moment is lost). There is no
limit on connections unless one is configured; then the surplus waits in order of arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from typing import Any, cast

from proxy.config.address import WorkerAddress
from proxy.errors import ConnectFailed, LegTimeout, ProxyError, Retry
from proxy.upstream.connection import WorkerConnection

# Under the workers' keep-alive time-out of 5 s with room for a slow network.
IDLE_LIMIT = 4.0
# Dead hosts send no RST: unacknowledged data ends a connection after this time (RFC 5482), milliseconds.
_TCP_USER_TIMEOUT_MS = 20_000


class ConnectAttempt:
    """Waits for a new connection (or a free place); can be aborted like an exchange.

    Attributes:
        future: the connection; whoever awaited it and cannot use it calls `give_up`.
    """

    __slots__ = ("_pool", "future")

    def __init__(self, pool: ConnectionPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self.future: asyncio.Future[WorkerConnection] = loop.create_future()

    def abort(self, _exchange: int, error: ProxyError) -> None:
        """Stop waiting. The connection, when it comes, goes to the pool."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # seen: the waiting task may be cancelled at this moment

    def give_up(self) -> None:
        """Nobody will use the connection: it goes to the pool, now or when it comes."""
        if not self.future.cancel() and not self.future.cancelled() and self.future.exception() is None:
            self._pool.give_back(self.future.result())


class ConnectionPool:
    """Connections to one worker address.

    Args:
        address: where the worker listens.
        connect_timeout: seconds for name resolution, TCP and TLS together; 0 = no limit.
        max_connections: 0 = no limit.
        tls: for `https` addresses; the system's trusted authorities when None.

    Attributes:
        ended_by_worker: grows when the worker closes or resets connections, as it does when it dies.
    """

    def __init__(
        self,
        address: WorkerAddress,
        *,
        connect_timeout: float = 5.0,
        max_connections: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self._connect_timeout = connect_timeout or None
        self._max_connections = max_connections
        self._loop = asyncio.get_running_loop()
        self._idle: list[WorkerConnection] = []
        self._open: set[WorkerConnection] = set()
        self._connecting: dict[asyncio.Task[None], ConnectAttempt] = {}
        self._waiting: deque[ConnectAttempt] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self.ended_by_worker = 0
        self._tls = (tls or ssl.create_default_context()) if address.scheme == "https" else None

    @property
    def open_connections(self) -> int:
        """Connections, idle ones included."""
        return len(self._open)

    @property
    def idle_connections(self) -> int:
        """Connections that wait for a request."""
        return len(self._idle)

    def take_idle(self) -> WorkerConnection | None:
        """The most recently used idle connection, or None."""
        now = self._loop.time()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and now < connection.idle_since + IDLE_LIMIT:
                return connection
            connection.close()
        return None

    def connect(self) -> ConnectAttempt:
        """Begin to connect; await the attempt's `future`, which raises `ConnectFailed` or `LegTimeout`."""
        attempt = ConnectAttempt(self, self._loop)
        if self._closed:
            attempt.abort(0, ConnectFailed("the connection pool is closed"))
        elif self._max_connections and len(self._open) + len(self._connecting) >= self._max_connections:
            self._waiting.append(attempt)
            if self._idle:  # passed over for a fresh one: the oldest makes room
                self._idle.pop(0).close()
        else:
            self._start(attempt)
        return attempt

    def give_back(self, connection: WorkerConnection) -> None:
        """Called by a connection whose exchange is complete, and for one that nobody wants any more."""
        if self._closed or not connection.usable:
            connection.close()
            return
        connection.reused = True
        connection.idle_since = self._loop.time()
        attempt = self._next_waiting()
        if attempt is not None:
            attempt.future.set_result(connection)
            return
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE_LIMIT, self._close_expired)

    def forget(self, connection: WorkerConnection, error: Exception | None) -> None:
        """Called by a connection that was lost; with an error if that was not our doing."""
        if error is not None:
            self.ended_by_worker += 1
        self._open.discard(connection)
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)
        self._start_waiting()

    async def close(self) -> None:
        """Close all connections for good; whoever still waits for one gets `ConnectFailed`."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        while (attempt := self._next_waiting()) is not None:
            attempt.abort(0, ConnectFailed("the connection pool is closed"))
        connecting = list(self._connecting)
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        for connection in list(self._open):
            connection.close()

    def _next_waiting(self) -> ConnectAttempt | None:
        while self._waiting:
            attempt = self._waiting.popleft()
            if not attempt.future.done():
                return attempt
        return None

    def _start_waiting(self) -> None:
        if self._waiting and len(self._open) + len(self._connecting) < self._max_connections:
            attempt = self._next_waiting()
            if attempt is not None:
                self._start(attempt)

    def _start(self, attempt: ConnectAttempt) -> None:
        task = self._loop.create_task(self._connect(attempt))
        self._connecting[task] = attempt
        task.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[None]) -> None:
        attempt = self._connecting.pop(task, None)
        if attempt is not None:
            # Failed, which has freed its place, or cancelled, perhaps before it began.
            attempt.abort(0, ConnectFailed("the connection pool is closed"))
            self._start_waiting()

    async def _connect(self, attempt: ConnectAttempt) -> None:
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection = await self._open_connection()
        except TimeoutError:
            message = "connecting to the worker took too long"
            attempt.abort(0, LegTimeout(message, code="connect_timeout", retry=Retry.UNSENT))
        except Exception as error:
            # OSErrors (those of ssl and socket included), and UnicodeError for a name that no resolver takes.
            attempt.abort(0, ConnectFailed(f"no connection to the worker ({type(error).__name__})"))
        else:
            self._open.add(connection)
            self._connecting.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
            if attempt.future.done():
                self.give_back(connection)  # whoever wanted it has left
            else:
                attempt.future.set_result(connection)

    async def _open_connection(self) -> WorkerConnection:
        loop, address = self._loop, self.address

        def factory() -> WorkerConnection:
            return WorkerConnection(self, loop)

        if address.unix_path is not None:
            _, connection = await loop.create_unix_connection(factory, address.unix_path)
        else:
            # Names are resolved again each time: a worker that moved is found without a restart.
            transport, connection = await loop.create_connection(
                factory, address.host, address.port, ssl=self._tls
            )
            if connection.usable:
                _set_tcp_options(transport.get_extra_info("socket"))
        if not connection.usable:
            raise ConnectionResetError  # lost already; it must not be counted
        return connection

    def _close_expired(self) -> None:
        """Close idle connections that are too old; the list is in order of age."""
        self._sweep = None
        now = self._loop.time()
        expired = 0
        while expired < len(self._idle) and self._idle[expired].idle_since + IDLE_LIMIT <= now:
            expired += 1
        for connection in self._idle[:expired]:
            connection.close()
        del self._idle[:expired]
        if self._idle:
            due = self._idle[0].idle_since + IDLE_LIMIT
            self._sweep = self._loop.call_at(due, self._close_expired)


def _set_tcp_options(sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)
