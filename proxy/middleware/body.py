"""Reads the body of an inference request once, splits it lazily, and takes over watching the client."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import BodyTooLarge, ClientGone, EncodedBody, InvalidRequest
from proxy.lifecycle.client import EXTENSION, Client, PlainClient, RelayClient
from proxy.lifecycle.record import RECORD
from proxy.placement.policy import NO_PLACEMENT, Placement
from proxy.wire.errors import MalformedJSON
from proxy.wire.members import Members, split_object

REQUEST_BODY = "disagg.body"
"""Where `RequestBody` is in the ASGI scope."""


class RequestBody(msgspec.Struct):
    """A request's body and the one who sent it.

    Attributes:
        members: top-level members as raw slices; the field policy replaces them.
        client: told the answer. Nobody calls `receive` again.
        priority: the member of that name, which the field policy may drop, but not before the queue has seen it.
        placement: what the placement policies know of it.
        conversation: the id that the client names, or "".
        asked: names of what the client wants in its answer.
    """

    members: Members
    client: Client
    priority: msgspec.Raw | None = None
    placement: Placement = NO_PLACEMENT
    conversation: str = ""
    asked: tuple[str, ...] = ()


class BodyMiddleware:
    """For routes that take a JSON object.

    Args:
        app: the endpoint, behind the field policy.
        max_bytes: 413 above; our own server checks the same limit before a large body has been read.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            EncodedBody, BodyTooLarge, InvalidRequest, ClientGone.
        """
        refuse_encoded(scope["headers"])
        body = await read_body(receive, self._max_bytes)
        scope[RECORD].body_size = len(body)
        try:
            members = split_object(body)
        except MalformedJSON as error:
            raise InvalidRequest(f"the body is not a JSON object: {error}", code="invalid_json") from None
        client = client_of(scope, receive, send)
        scope[REQUEST_BODY] = RequestBody(members, client, members.get("priority"))
        del body, members  # this frame lives as long as the answer; see `Passage.forget_prompt`
        try:
            await self._app(scope, receive, send)
        finally:
            client.close()


def refuse_encoded(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises:
    EncodedBody: the body of a request with these headers is encoded.
    """
    for name, value in headers:
        if name == b"content-encoding" and value.lower() != b"identity":
            raise EncodedBody("the request body must not be encoded (content-encoding)")


def client_of(scope: Scope, receive: Receive, send: Send) -> Client:
    """Who sent a request, after its body has been read: nobody calls `receive` again."""
    relay = (scope.get("extensions") or {}).get(EXTENSION)
    return RelayClient(relay) if relay is not None else PlainClient(receive, send)


async def read_body(receive: Receive, most: int) -> bytes:
    """The whole body of a request.

    Args:
        receive: of the request.
        most: bytes that it may have.

    Raises:
        BodyTooLarge, ClientGone.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the client left before its request was complete")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise BodyTooLarge(f"the request body exceeds {most} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
