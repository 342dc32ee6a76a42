"""A completions stream, told as SGLang tells one: each event repeats all that was generated so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
from starlette.types import Message, Send

from proxy.endpoints.generate.generated import Generated
from proxy.errors import Aborted, BrokenAnswer, ProxyError, Source, error_body
from proxy.lifecycle.record import RequestRecord
from proxy.wire.errors import MalformedJSON, WireError
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

    Attributes:
        begun: the client has got the beginning of an event stream.
        ended: and its end.
    """

    def __init__(self, send: Send, told: Told) -> None:
        self._send = send
        self._told = told
        self._splitter = EventSplitter()
        self._untold = False  # something has come that no event has told yet
        self._closed = (
            False  # nothing more is told: behind an event that cannot be read a part would be missing
        )
        self.begun = False
        self.ended = False

    async def __call__(self, message: Message) -> None:
        """Take the start or a piece of the answer.

        Raises:
            BrokenAnswer: it is no stream, or one of its events has no end.
        """
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            streams = (b"content-type", _STREAM) in [(n, v[: len(_STREAM)]) for n, v in headers]
            if message["status"] == 200:  # a worker may answer with an error instead: that passes as it is
                if not streams:
                    raise broken_answer("the answer is no event stream")
                self.begun = True
                message = {**message, "headers": [pair for pair in headers if pair[0] != b"content-length"]}
        elif self.begun:
            more = message.get("more_body", False)
            message = {**message, "body": self._translated(message.get("body", b""), last=not more)}
            if not message["body"] and more:
                return
            self.ended = not more
        await self._send(message)

    async def break_off(self, error: ProxyError) -> None:
        """Say why nothing, or nothing more, comes. An abort is an answer of its own."""
        if not self.begun:
            headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        body = b"".join(self._failure(error, event(error_body(error))))
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def _translated(self, piece: bytes, *, last: bool) -> bytes:
        try:
            events = self._splitter.feed(piece)
            if last and self._splitter.rest:
                events += self._splitter.feed(b"\n\n")
        except WireError as error:
            raise broken_answer(str(error)) from None
        parts: list[bytes] = []
        for each in events:
            parts += self._told_of(each)
        if self._untold and not self._closed and (last or self._told.generated.finish_reason is None):
            parts.append(self._answer())
        return b"".join(parts)

    def _told_of(self, each: bytes) -> Iterable[bytes]:
        """What takes the place of one event at once."""
        data = data_of(each)
        if not data:
            return (each,)  # a comment
        if data == _DONE:
            return (DONE,) if self._closed else (self._answer(), DONE)
        if self._closed:
            return ()
        try:
            self._told.generated.take(data)
        except MalformedJSON:
            self._closed = self._told.generated.finish_reason is None
            return self._failure(self._told.record.error, each)
        self._untold = True
        return ()

    def _failure(self, error: ProxyError | None, otherwise: bytes) -> Iterable[bytes]:
        if isinstance(error, Aborted):
            return self._event(self._told.aborted(error)), DONE
        return (otherwise,)

    def _answer(self) -> bytes:
        self._untold = False
        return self._event(self._told.answer())

    @staticmethod
    def _event(value: Any) -> bytes:
        return event(msgspec.json.encode(value))


def broken_answer(message: str) -> BrokenAnswer:
    """A generation worker's answer is not what it must be."""
    fault = BrokenAnswer(message)
    fault.source = Source.GENERATION
    return fault
