"""One of the requests that a request for several choices is made of: to the inner application a client of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Scope

from proxy.errors import ProxyError
from proxy.lifecycle.client import PlainClient
from proxy.lifecycle.record import RECORD, RequestRecord
from proxy.middleware.body import REQUEST_BODY, RequestBody
from proxy.wire.late_answer import as_events
from proxy.wire.members import Members

Headers = list[tuple[bytes, bytes]]
Take = Callable[["Choice", bytes], Awaitable[None]]


class ChoiceFailed(Exception):
    """The request for one choice has failed, and with it the whole.

    Attributes:
        choice: with the worker's answer, if it was answered with something else than a choice.
        error: of the proxy's, if a stream has broken off.
    """

    def __init__(self, choice: Choice, error: ProxyError | None = None) -> None:
        super().__init__()
        self.choice = choice
        self.error = error


class Choice:
    """See the module's docstring.

    Args:
        number: of the choice, from 0.
        scope: of the client's request.
        members: to be sent; emptied when no leg will be sent any more.
        take: takes the pieces of a stream; None to collect a whole answer.

    Attributes:
        record: of this request alone.
        status, headers, body: its answer, if it is none that `take` gets.
    """

    def __init__(self, number: int, scope: Scope, members: Members, take: Take | None) -> None:
        outer: RequestRecord = scope[RECORD]
        body: RequestBody = scope[REQUEST_BODY]
        self.number = number
        # The same id, by which the whole can be aborted.
        self.record = record = RequestRecord(outer.request_id, outer.received)
        record.key, record.dropped, record.body_size = outer.key, outer.dropped, outer.body_size
        self.status = 0
        self.headers: Headers = []
        self.body = bytearray()
        self._take = take
        self._streams = False
        self._left = asyncio.Event()
        self._client = PlainClient(self._receive, self._send)
        request = RequestBody(
            members, self._client, body.priority, body.placement, body.conversation, body.asked
        )
        self._scope = {**scope, RECORD: record, REQUEST_BODY: request, "extensions": {}}

    async def serve(self, app: ASGIApp) -> None:
        """Run the request to its end.

        Raises:
            ChoiceFailed: the answer is no choice.
            ProxyError, InvalidField: there is none.
        """
        try:
            await app(self._scope, self._receive, self._send)
        finally:
            self._client.close()
            self._scope = {}
        if self.record.error is not None:
            raise ChoiceFailed(self, self.record.error)
        if self.status != 200 or self._refused or self._streams != (self._take is not None):
            raise ChoiceFailed(self)

    @property
    def _refused(self) -> bool:
        """A worker has answered with an error, perhaps in a stream that a comment had begun."""
        return self.record.status >= 400

    def refusal(self) -> bytes:
        """The events that tell the worker's error in a stream; empty when there was none."""
        content_type = dict(self.headers).get(b"content-type", b"")
        return as_events(self.status, content_type, bytes(self.body)) if self._refused else b""

    def leave(self) -> None:
        """Nobody wants the answer any more."""
        self._left.set()

    async def _receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._left.is_set():
            raise OSError("nobody wants the answer any more")  # ASGI spec 2.4
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message["headers"])
            content_type = dict(self.headers).get(b"content-type", b"")
            self._streams = self.status == 200 and content_type.startswith(b"text/event-stream")
        elif self._streams and self._take is not None and not self._refused:
            # Behind an error comes the event that tells it: the merged stream has one of its own.
            if message["body"] and self.record.error is None:
                await self._take(self, message["body"])
        else:
            self.body += message["body"]
