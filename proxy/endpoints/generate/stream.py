"""A completions stream, told as SGLang tells one: each event repeats all that was generated so far."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from starlette.types import Message, Send

from proxy.endpoints.generate.generated import Generated
from proxy.errors import Aborted
from proxy.lifecycle.record import RequestRecord
from proxy.wire.sse import DONE, EventSplitter, data_of, event

_DONE = b"[DONE]"
_STREAM = b"text/event-stream"


class Told(Protocol):
    """What is told of the request.

    Attributes:
        generated: so far.
        record: of the request.
    """

    generated: Generated
    record: RequestRecord

    def answer(self) -> Any:
        """At this moment."""
        ...

    def aborted(self, error: Aborted) -> Any:
        """At the end of a request that was aborted."""
        ...


class StreamTranslator:
    """The `send` of a completions request that is streamed. Events that come together become one, since each repeats
    those before it; the last one waits for the usage, which comes behind it.

    Args:
        send: to the client.
        told: what is told.
    """

    def __init__(self, send: Send, told: Told) -> None:
        self._send = send
        self._told = told
        self._splitter = EventSplitter()
        self._translates = False

    async def __call__(self, message: Message) -> None:
        """Take the start or a piece of the answer."""
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            # A worker may answer with an error instead: that passes as it is.
            self._translates = (b"content-type", _STREAM) in [(n, v[: len(_STREAM)]) for n, v in headers]
            if self._translates:
                message = {**message, "headers": [pair for pair in headers if pair[0] != b"content-length"]}
        elif self._translates:
            message = {**message, "body": self._translated(message.get("body", b""))}
            if not message["body"] and message.get("more_body", False):
                return
        await self._send(message)

    async def abort(self, error: Aborted) -> None:
        """The request was aborted before its answer began."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        body = self._event(self._told.aborted(error)) + DONE
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def _translated(self, piece: bytes) -> bytes:
        told = self._told
        parts: list[bytes] = []
        grown = False
        for each in self._splitter.feed(piece):
            data = data_of(each)
            if data == _DONE:
                parts += (self._event(told.answer()), DONE)
                grown = False
            elif not data:
                parts.append(each)  # a comment
            elif not self._take(data):
                error = told.record.error
                parts += (self._event(told.aborted(error)), DONE) if isinstance(error, Aborted) else (each,)
                grown = False
            else:
                grown = told.generated.finish_reason is None
        if grown:
            parts.append(self._event(told.answer()))
        return b"".join(parts)

    def _take(self, data: bytes) -> bool:
        try:
            self._told.generated.take(data)
        except msgspec.DecodeError:
            return False
        return True

    @staticmethod
    def _event(value: Any) -> bytes:
        return event(msgspec.json.encode(value))
