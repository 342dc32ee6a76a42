"""Routes that one worker serves in one leg: those of `proxy.pass_through`.

The body goes to the worker as it came, JSON or not. Of a JSON object the proxy reads `model`, which chooses among the
workers and may be an alias, and takes out what must not come from clients. One that only more lenient parsers than ours
can read is refused, since nothing could be taken out of it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from starlette.types import Receive, Scope, Send

from proxy.endpoints.entrance import Entrance
from proxy.errors import InvalidRequest
from proxy.lifecycle.headers import Headers
from proxy.lifecycle.passage import ErrorEvent, openai_event
from proxy.lifecycle.record import RECORD, RequestRecord
from proxy.lifecycle.service import Service
from proxy.lifecycle.single_leg import SingleLeg
from proxy.middleware.body import client_of, read_body
from proxy.wire.errors import MalformedJSON
from proxy.wire.fields.engines import HAND_OFF_NAMES
from proxy.wire.members import join_object, split_object
from proxy.wire.request import InferenceRequest
from proxy.workers.worker import Role

NEVER_FROM_CLIENTS = HAND_OFF_NAMES | {"prompt_token_ids"}
_ABOUT_THE_BODY = frozenset({b"content-type", b"content-encoding", b"accept"})
_TEXT = msgspec.json.Decoder(str)


class SingleLegEndpoint:
    """One such route.

    Args:
        service: what all requests share.
        path: of the route, here and on the workers.
        role: whose workers are asked.
        error_event: how a stream that breaks off says so.
        null_passes: see `SingleLeg`.
    """

    def __init__(
        self,
        service: Service,
        *,
        path: str,
        role: Role,
        error_event: ErrorEvent = openai_event,
        null_passes: bool = True,
    ) -> None:
        self._null_passes = null_passes
        self._proxy = service.settings.proxy
        self._entrance = Entrance(service, path, forwarded=_ABOUT_THE_BODY)
        self._role = role
        self._error_event = error_event

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidRequest, ProxyError: nothing has been sent; the errors middleware answers.
        """
        record: RequestRecord = scope[RECORD]
        given = await read_body(receive, self._proxy.max_body_bytes)
        record.body_size = len(given)
        body = self._read(given, record, scope["headers"])
        head_only = scope["method"] == "HEAD"
        client = client_of(scope, receive, send)
        request = InferenceRequest(
            members={}, chat=False, model=record.model, stream=False, include_usage=False
        )
        passage = self._entrance.passage(scope, request, client)
        passage.error_event = self._error_event
        method = "GET" if head_only else scope["method"]
        leg = SingleLeg(
            passage, self._role, method, body, streams=not head_only, null_passes=self._null_passes
        )
        del given, body  # this frame lives as long as the answer; the leg lets go of the body before
        try:
            await leg.serve()
        finally:
            client.close()

    def _read(self, body: bytes, record: RequestRecord, headers: Headers) -> bytes:
        """Note the model and what is taken out; the body for the worker."""
        try:
            members = split_object(body)
        except MalformedJSON as error:
            if _is_json(headers) and _may_be_object(body):
                raise InvalidRequest(f"the body is not JSON: {error}", code="invalid_json") from None
            return body  # whatever it is, the worker will say
        dropped = tuple(name for name in members if name in NEVER_FROM_CLIENTS)
        model = _text(members.get("model"))
        alias = self._proxy.model_aliases.get(model)
        record.model, record.dropped = model, dropped
        if alias is None and not dropped:
            return body
        if alias is not None:
            members["model"] = msgspec.Raw(msgspec.json.encode(alias))
        return join_object(_without(members, dropped))


def _is_json(headers: Headers) -> bool:
    """Whether a worker would read the body as JSON: it says so, or nothing."""
    types = [value.lower() for name, value in headers if name == b"content-type"]
    return not types or any(b"json" in each for each in types)


def _may_be_object(body: bytes) -> bool:
    """Python's parser, which the workers use, takes NaN, marks of the byte order, and UTF-16 and UTF-32 as well."""
    start = body.lstrip(b" \t\r\n\xef\xbb\xbf")[:4]
    return start.startswith((b"{", b"\xff\xfe", b"\xfe\xff")) or b"\0" in start


def _without(members: dict[str, msgspec.Raw], names: Collection[str]) -> dict[str, msgspec.Raw]:
    return {name: value for name, value in members.items() if name not in names}


def _text(value: msgspec.Raw | None) -> str:
    """A string, empty when it is none."""
    try:
        return "" if value is None else _TEXT.decode(value)
    except msgspec.DecodeError:
        return ""
