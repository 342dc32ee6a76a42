"""Applies the field tables of `proxy.wire.fields` to a request before an endpoint sees it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import InvalidRequest
from proxy.lifecycle.headers import acceptable_request_id
from proxy.lifecycle.record import RECORD
from proxy.middleware.body import REQUEST_BODY
from proxy.wire.fields.conversation import conversation_id, conversation_params
from proxy.wire.fields.engines import HAND_OFF_NAMES
from proxy.wire.fields.policy import FieldPolicy
from proxy.wire.members import Members

_REQUEST_ID_MEMBERS = ("request_id", "rid")
_STRING = msgspec.json.Decoder(str)

_logger = logging.getLogger("proxy")


class FieldPolicyMiddleware:
    """Leaves in the body's members only what the workers accept, notes the names of the others, and adds the
    conversation that the request belongs to.

    Args:
        app: the endpoint.
        policy: gives the rules of its route, which change when workers of another version come.
        allow_chat_template: a request may bring its own chat template (`allow_request_chat_template`).
    """

    def __init__(self, app: ASGIApp, *, policy: Callable[[], FieldPolicy], allow_chat_template: bool) -> None:
        self._app = app
        self._policy = policy
        self._allow_chat_template = allow_chat_template
        self._warned: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidField, InvalidRequest: the errors middleware answers.
        """
        body, record = scope[REQUEST_BODY], scope[RECORD]
        policy = self._policy()
        sent = body.members
        applied = policy.apply(sent)
        members = applied.members
        if not self._allow_chat_template and "chat_template" in members:
            message = "chat_template cannot be set per request unless allow_request_chat_template is on"
            raise InvalidRequest(message, code="unsupported_field", param="chat_template")
        if policy.tells_conversations:
            conversation = conversation_id(sent, scope["headers"])
            if conversation:
                body.conversation = conversation
                if policy.takes_conversation_params:
                    members.setdefault("conversation_params", conversation_params(conversation))
        body.members = members
        body.asked = applied.asked
        record.dropped = applied.dropped
        if applied.dropped:
            self._warn(applied.dropped)
            for name in _REQUEST_ID_MEMBERS:
                if name in sent:
                    record.request_id = _request_id(sent, name, scope["headers"]) or record.request_id
        del sent, applied, members  # this frame lives as long as the answer; see `Passage.forget_prompt`
        await self._app(scope, receive, send)

    def _warn(self, dropped: Iterable[str]) -> None:
        """Somebody who steers hand-offs from outside has misunderstood something, or is up to something."""
        for name in HAND_OFF_NAMES.intersection(dropped) - self._warned:
            self._warned.add(name)
            _logger.warning(
                "clients send the field %s, which is the proxy's own business: it is dropped", name
            )


def _request_id(members: Members, name: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The request id that a client gives in the body instead of the header."""
    if any(header == b"x-request-id" for header, _ in headers):
        return None
    try:
        value = _STRING.decode(members[name])
    except msgspec.DecodeError:
        return None
    return value if acceptable_request_id(value.encode()) else None
