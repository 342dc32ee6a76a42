"""Runs the requests for several choices at once and merges their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.types import ASGIApp, Send

from proxy.endpoints.several.choice import Choice, ChoiceFailed, Headers
from proxy.errors import BrokenAnswer, ClientGone, ProxyError, ShuttingDown, Source, error_body
from proxy.lifecycle.client import Client
from proxy.lifecycle.record import RequestRecord
from proxy.wire import sse
from proxy.wire.choices import MergedStream, Wanted, merged_answer
from proxy.wire.errors import WireError
from proxy.wire.sse import EventSplitter

# Told by the server, or by the middleware that knows the client's request id.
_OF_EACH = frozenset({b"content-length", b"x-request-id"})


async def run_all(choices: Sequence[Choice], app: ASGIApp, client: Client) -> None:
    """Serve all of them; when one fails or the client leaves, nobody waits for the others.

    Raises:
        ClientGone: the client left.
        ChoiceFailed, ProxyError, InvalidField: of the first that failed.
    """

    def leave() -> None:
        for choice in choices:
            choice.leave()

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(choice.serve(app)) for choice in choices]
    client.watch(leave)
    try:
        _, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if running:
            leave()
            await asyncio.wait(running)
    except asyncio.CancelledError:
        leave()
        for task in tasks:
            task.cancel()  # it may wait for a slow client
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    failures = [failure for task in tasks if (failure := task.exception()) is not None]
    # Those that were told to leave have failed as well.
    causes = [failure for failure in failures if not _has_left(failure)]
    if client.gone or (failures and not causes):
        raise ClientGone("the client left")
    if causes:
        raise causes[0]


def _has_left(failure: BaseException) -> bool:
    return isinstance(failure, ClientGone) or (
        isinstance(failure, ChoiceFailed) and isinstance(failure.error, ClientGone)
    )


async def send_whole(send: Send, choices: Sequence[Choice], wanted: Wanted, record: RequestRecord) -> None:
    """Send the merged JSON answer.

    Raises:
        BrokenAnswer: a worker's answer has no choices, or no log probabilities where they were asked for.
    """
    try:
        body = merged_answer([bytes(choice.body) for choice in choices], wanted)
    except WireError as error:
        raise _fault(error) from None
    record.response_size = len(body)
    await send_as_is(send, 200, choices[0].headers, body)


async def send_as_is(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a whole answer with the headers of one choice."""
    await send({"type": "http.response.start", "status": status, "headers": [
        *kept(headers), (b"content-length", b"%d" % len(body))
    ]})  # fmt: skip
    await send({"type": "http.response.body", "body": body, "more_body": False})


def kept(headers: Headers) -> Headers:
    """The headers of a choice's answer that are true of the merged one."""
    return [(name, value) for name, value in headers if name not in _OF_EACH]


class Stream:
    """The merged stream on its way to the client. Whole events only, so that an error event can always follow.

    Args:
        send: the client's.
        record: of the client's request.
        count: how many choices there are.
    """

    def __init__(self, send: Send, record: RequestRecord, count: int) -> None:
        self._send = send
        self._record = record
        self._merged = MergedStream()
        self._splitters = [EventSplitter() for _ in range(count)]
        self._turn = asyncio.Lock()  # the server's back-pressure holds one of them at a time
        self.begun = False

    async def take(self, choice: Choice, piece: bytes) -> None:
        """Pass on what a piece of one choice's stream completes.

        Raises:
            OSError: the client has gone.
            BrokenAnswer: an event without an end.
        """
        try:
            events = self._splitters[choice.number].feed(piece)
        except WireError as error:
            raise _fault(error) from None
        data = b"".join([self._merged.event(choice.number, event) for event in events])
        if data:
            async with self._turn:
                await self._begin(choice)
                await self._piece(data)

    async def end(self, choices: Sequence[Choice]) -> None:
        """All choices are complete.

        Raises:
            BrokenAnswer: a worker's usage cannot be read.
        """
        for choice, splitter in zip(choices, self._splitters, strict=True):
            if splitter.rest:
                await self.take(choice, b"\n\n")
        await self._begin(choices[0])
        try:
            last = self._merged.end()
        except WireError as error:
            raise _fault(error) from None
        await self._piece(last, more=False)

    async def break_off(self, error: ProxyError) -> None:
        """Tell the client why the rest does not come."""
        self._record.error = error
        await self._piece(sse.event(error_body(error)), more=False)

    async def refuse(self, choice: Choice) -> None:
        """Tell the client what a worker says in place of a choice."""
        await self._piece(choice.refusal(), more=False)
        self._record.status = choice.record.status

    async def stop(self) -> None:
        """The server's time for running answers is over."""
        if self.begun:
            await self.break_off(ShuttingDown("the proxy is stopping"))

    async def _begin(self, choice: Choice) -> None:
        if not self.begun:
            self.begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": kept(choice.headers)})

    async def _piece(self, data: bytes, *, more: bool = True) -> None:
        self._record.response_size += len(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


def _fault(error: WireError) -> BrokenAnswer:
    fault = BrokenAnswer(f"the answers of the workers cannot be merged: {error}")
    fault.source = Source.GENERATION
    return fault
