"""/set, /get, /delete, /expire and /get_prefix: the HTTP cluster storage of `trtllm-serve disaggregated`.

Workers that are started with `--disagg_cluster_uri http://<this proxy>` register there. Every answer is
`{"result": ...}`, with 400 where the result is false, null or empty, as upstream's.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from proxy.config.settings import Settings
from proxy.config.watched_file import WatchedFile
from proxy.endpoints.answer import send_json
from proxy.errors import BodyTooLarge, ClientFault, ClientGone, CrossSite, InvalidRequest, ProxyError
from proxy.fleet.commands import CommandFailed
from proxy.fleet.member import Member
from proxy.middleware.bearer import bearer_token
from proxy.named_files import storage_key
from proxy.router import Routes
from proxy.workers.discovery.storage_calls import STORAGE

Read = Callable[[Scope, Receive], Awaitable[dict[str, Any]]]
"""Makes a call to the storage out of a request."""

Ask = Callable[[dict[str, Any]], Awaitable[Any]]
"""Has the process that holds the storage carry a call out; see `proxy.workers.discovery.storage_calls`."""

# Browsers send one of them at least with what a page of another site makes them post (Fetch standard, section 3.2).
# Such a page must not register workers at a proxy that only its reader can reach.
_OF_BROWSERS = frozenset({b"origin", b"sec-fetch-site"})
_LONGEST_BODY = 64 * 1024
_TRUE = frozenset({"1", "true", "yes", "on", "t", "y"})
_FALSE = frozenset({"0", "false", "no", "off", "f", "n"})


class StorageUnavailable(ProxyError):
    """The process that holds the storage does not answer."""

    status = 502
    default_code = "cluster_storage_unavailable"


class StorageForbidden(ClientFault):
    """The key of the storage is missing or wrong."""

    status = 403
    default_code = "invalid_storage_key"


class _SetBody(msgspec.Struct):
    """Null stands for the default; unknown members are ignored."""

    key: str
    value: str | None = ""
    expire_time: float | None = -1
    ttl: float | None = -1
    overwrite_if_exists: bool | None = False


_set_decoder = msgspec.json.Decoder(_SetBody, strict=False)


def storage_routes(settings: Settings, member: Member) -> Routes:
    """The routes; none if the proxy serves no storage."""
    if settings.disagg_cluster is None or not settings.disagg_cluster.embedded:
        return {}
    ask, key = partial(member.ask_central, STORAGE), storage_key(settings.proxy)
    return {path: {method: StorageEndpoint(read, ask, key)} for path, (method, read) in _OPERATIONS.items()}


class StorageEndpoint:
    """One of the routes.

    Args:
        read: makes a call out of the request.
        ask: carries it out.
        key: bearer token that callers need; None: nobody needs one.
    """

    def __init__(self, read: Read, ask: Ask, key: WatchedFile[str] | None) -> None:
        self._read = read
        self._ask = ask
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            StorageForbidden, CrossSite, InvalidRequest, BodyTooLarge, StorageUnavailable.
        """
        self._check_key(scope)
        if any(name in _OF_BROWSERS for name, _ in scope["headers"]):
            raise CrossSite("the cluster storage is for workers, not for browsers")
        call = await self._read(scope, receive)
        try:
            result = await self._ask(call)
        except CommandFailed as error:
            raise StorageUnavailable(f"the cluster storage cannot be reached: {error}") from None
        await send_json(send, 200 if result else 400, {"result": result})

    def _check_key(self, scope: Scope) -> None:
        if self._key is None:
            return
        token = bearer_token(scope["headers"])
        if token is None or not hmac.compare_digest(token, self._key.value.encode("ascii")):
            raise StorageForbidden("the cluster storage needs its key: authorization: Bearer ...")


async def _read_set(_scope: Scope, receive: Receive) -> dict[str, Any]:
    content = await _body(receive)
    try:
        body = _set_decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not what the cluster storage takes: {error}") from None
    return {
        "operation": "set",
        "key": body.key,
        "value": body.value or "",
        "expire_time": -1 if body.expire_time is None else body.expire_time,
        "ttl": -1 if body.ttl is None else body.ttl,
        "overwrite": bool(body.overwrite_if_exists),
    }


async def _read_get(scope: Scope, _receive: Receive) -> dict[str, Any]:
    return {"operation": "get", "key": _parameter(scope, "key")}


async def _read_delete(scope: Scope, _receive: Receive) -> dict[str, Any]:
    return {"operation": "delete", "key": _parameter(scope, "key")}


async def _read_expire(scope: Scope, _receive: Receive) -> dict[str, Any]:
    text = _parameter(scope, "ttl")
    try:
        ttl = int(text)
    except ValueError:
        raise InvalidRequest("ttl must be a whole number of seconds", param="ttl") from None
    return {"operation": "expire", "key": _parameter(scope, "key"), "ttl": ttl}


async def _read_get_prefix(scope: Scope, _receive: Receive) -> dict[str, Any]:
    text = _query(scope).get("keys_only", "0").lower()
    if text not in _TRUE | _FALSE:
        raise InvalidRequest("keys_only must be 0 or 1", param="keys_only")
    prefix = _parameter(scope, "key_prefix")
    return {"operation": "get_prefix", "prefix": prefix, "keys_only": text in _TRUE}


def _parameter(scope: Scope, name: str) -> str:
    value = _query(scope).get(name)
    if value is None:
        raise InvalidRequest(f"the parameter {name} is missing", param=name)
    return value


def _query(scope: Scope) -> dict[str, str]:
    """The last value of each parameter; unknown ones are ignored, as upstream ignores them."""
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


async def _body(receive: Receive) -> bytes:
    parts = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the client left before its request was complete")
        parts += message.get("body", b"")
        if len(parts) > _LONGEST_BODY:
            raise BodyTooLarge(f"the cluster storage takes at most {_LONGEST_BODY} bytes at once")
        if not message.get("more_body", False):
            return bytes(parts)


_OPERATIONS: dict[str, tuple[str, Read]] = {
    "/set": ("POST", _read_set),
    "/get": ("GET", _read_get),
    "/delete": ("DELETE", _read_delete),
    "/expire": ("GET", _read_expire),
    "/get_prefix": ("GET", _read_get_prefix),
}
STORAGE_PATHS = frozenset(_OPERATIONS)
"""Of all routes."""
