"""The control channel: calls and notices between the supervisor and one process, JSON lines over a socket pair."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast

import msgspec

from proxy.fleet.commands import CommandFailed, UnknownCommand

CALL_TIMEOUT = 10.0
"""Seconds after which a call without an answer has failed."""

_logger = logging.getLogger("proxy.fleet")


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. A `call` is answered by a `result` or an `error` with its number, a `notice` by nothing."""

    kind: Literal["call", "result", "error", "notice"]
    number: int = 0
    command: str = ""
    body: Any = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


class ControlChannel(asyncio.Protocol):
    """One end; both can call. Messages are handled in the order of their arrival, as far as handlers do not wait.

    Args:
        handle: carries out what the other end asks for.
        lost: called when the other end has gone, unless `close` was called before.
    """

    def __init__(self, handle: Callable[[str, Any], Awaitable[Any]], lost: Callable[[], None]) -> None:
        self._handle = handle
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._unread = b""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether something can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def open(self, sock: socket.socket) -> None:
        """Begin to use the socket, which belongs to the channel from now on."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, sock=sock)

    def close(self) -> None:
        """Stop; calls that wait for an answer fail."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()

    async def call(self, command: str, body: Any = None, *, seconds: float = CALL_TIMEOUT) -> Any:
        """Ask the other end and return its result (plain JSON values).

        Raises:
            CommandFailed: it failed there, the other end has gone, or there was no answer in time.
        """
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send(Message("call", number, command, body))
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            raise CommandFailed(f"no answer within {seconds:g} s") from None
        finally:
            self._waiting.pop(number, None)

    def notify(self, command: str, body: Any = None) -> None:
        """Tell the other end; nothing happens when it has gone."""
        try:
            self._send(Message("notice", 0, command, body))
        except CommandFailed:
            _logger.debug("nobody to tell: %s", command)

    def _send(self, message: Message) -> None:
        if self._transport is None or not self.connected:
            raise CommandFailed("the process is not connected")
        self._transport.write(_encoder.encode(message) + b"\n")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._received(_decoder.decode(line))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(CommandFailed("the process has gone"))
        if not self._closed:
            self._lost()

    def _received(self, message: Message) -> None:
        if message.kind in ("call", "notice"):
            task = asyncio.get_running_loop().create_task(self._carry_out(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        answer = self._waiting.get(message.number)
        if answer is None or answer.done():
            return
        if message.kind == "result":
            answer.set_result(message.body)
        else:
            answer.set_exception(CommandFailed(str(message.body)))

    async def _carry_out(self, message: Message) -> None:
        try:
            result = Message("result", message.number, body=await self._handle(message.command, message.body))
        except Exception as error:
            if not isinstance(error, CommandFailed | UnknownCommand):
                _logger.warning("the command %s failed", message.command, exc_info=True)
            result = Message("error", message.number, body=f"{type(error).__name__}: {error}")
        if message.kind == "call" and self.connected:
            self._send(result)
