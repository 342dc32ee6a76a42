"""The way of a request to generate: it becomes a completions request, which the ordinary endpoint serves, and the
answer is told in the shape that was asked for.

The inner application is any ASGI application; it gets its own `send`, so that the answer comes through here.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.endpoints.answer import send_json
from proxy.endpoints.generate.generated import Generated
from proxy.endpoints.generate.shape import Asked, Shape
from proxy.endpoints.generate.stream import StreamTranslator, broken_answer
from proxy.endpoints.generate.texts import Texts
from proxy.errors import Aborted, ClientGone, InvalidRequest, NotReady, ProxyError
from proxy.lifecycle.client import EXTENSION
from proxy.lifecycle.record import RECORD, RequestRecord
from proxy.lifecycle.service import Service
from proxy.middleware.body import read_body, refuse_encoded
from proxy.telemetry.model_names import served_models
from proxy.wire.errors import MalformedJSON
from proxy.wire.members import JSONBytes, join_object

_ABOUT_THE_BODY = frozenset({b"content-length", b"content-type"})


class GenerateEndpoint:
    """See the module's docstring.

    Args:
        service: knows the served models.
        shape: of requests and answers.
        completions: the application behind /v1/completions.
    """

    def __init__(self, service: Service, shape: Shape, completions: ASGIApp) -> None:
        self._service = service
        self._shape = shape
        self._completions = completions
        self._max_bytes = service.settings.proxy.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidRequest, EncodedBody, BodyTooLarge, ClientGone, and what completions raise: nothing has been sent.
        """
        record: RequestRecord = scope[RECORD]
        refuse_encoded(scope["headers"])
        asked = self._shape.read(await read_body(receive, self._max_bytes))
        if asked.request_id is not None:
            record.request_id = asked.request_id
        told = _Told(self._shape, asked, Texts(self._service.tokenizer, asked), record)
        given = _Receive(join_object(self._members(asked)), receive)
        asked.members.clear()  # slices of the body, which they would keep as long as the answer lasts
        inner = {**scope, "query_string": b"", "extensions": _without_relay(scope)}
        serve = self._stream if asked.stream else self._whole
        await serve(inner, given, send, told)

    def _members(self, asked: Asked) -> dict[str, JSONBytes]:
        members = asked.members
        if "model" not in members:
            members["model"] = msgspec.json.encode(self._only_model())
        if asked.ids:
            members["detokenize"] = b"false"
        if asked.logprobs:
            members["logprobs"] = b"1"
        if asked.stream:
            members["stream"] = b"true"
            members["stream_options"] = b'{"include_usage":true}'
        return members

    def _only_model(self) -> str:
        models = set(served_models(self._service)).difference(self._service.settings.proxy.model_aliases)
        if not models:
            raise NotReady("no worker tells its model")
        if len(models) > 1:
            message = "model is required, since several are served"
            raise InvalidRequest(message, code="missing_required_parameter", param="model")
        return models.pop()

    async def _whole(self, scope: Scope, receive: Receive, send: Send, told: _Told) -> None:
        captured = _Captured()
        try:
            await self._completions(scope, receive, captured)
        except Aborted as error:
            told.fail(error)
            await send_json(send, 200, told.aborted(error))
            return
        if captured.status != 200:
            await captured.pass_on(send)
            return
        try:
            told.generated.take(bytes(captured.body))
        except MalformedJSON:
            raise broken_answer("the answer is no completions answer") from None
        if not told.generated.begun:
            raise broken_answer("the answer has no choices")
        body = msgspec.json.encode(told.answer())
        told.record.response_size = len(body)
        headers = [header for header in captured.headers if header[0] not in _ABOUT_THE_BODY]
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _stream(self, scope: Scope, receive: Receive, send: Send, told: _Told) -> None:
        translator = StreamTranslator(send, told)
        try:
            await self._completions(scope, receive, translator)
        except ClientGone:
            raise
        except ProxyError as error:
            if not translator.begun and not isinstance(error, Aborted):
                raise
            told.fail(error)
            await translator.break_off(error)
        else:
            if translator.begun and not translator.ended:
                await self._break_off(translator, told.record)

    @staticmethod
    async def _break_off(translator: StreamTranslator, record: RequestRecord) -> None:
        """The worker's stream ended inside an event, behind which nothing can be said. Here it can: the client has
        got whole ones."""
        if record.error is not None and not isinstance(record.error, ClientGone):
            record.cut_inside_event = False
            await translator.break_off(record.error)


class _Told:
    """What is told of a request."""

    def __init__(self, shape: Shape, asked: Asked, texts: Texts, record: RequestRecord) -> None:
        self._shape = shape
        self._asked = asked
        self._texts = texts
        self.record = record
        self.generated = Generated()

    def answer(self) -> Any:
        """At this moment."""
        self._texts.fill(self.generated)
        seconds = perf_counter() - self.record.received
        return self._shape.answer(self._asked, self.generated, self.record.request_id, seconds)

    def aborted(self, error: Aborted) -> Any:
        """At the end of a request that was aborted."""
        self._texts.fill(self.generated)
        return self._shape.aborted(self._asked, self.generated, self.record.request_id, error.message)

    def fail(self, error: ProxyError) -> None:
        """Note how the request ended: the client gets a 200."""
        self.record.error = error


class _Receive:
    """The completions body, then whatever comes from the client: its leave."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()


class _Captured:
    """An answer that is held until it is complete."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
        else:
            self.body += message.get("body", b"")

    async def pass_on(self, send: Send) -> None:
        """Send it as it is."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": bytes(self.body), "more_body": False})


def _without_relay(scope: Scope) -> dict[str, Any]:
    return {name: value for name, value in (scope.get("extensions") or {}).items() if name != EXTENSION}
