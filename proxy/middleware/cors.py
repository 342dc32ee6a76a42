"""Lets browsers' scripts from other origins read the answers (Fetch standard, section 3.3); only there when set."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.lifecycle.headers import Headers

RESPONSE_HEADERS = "disagg.response_headers"
"""Where headers for the answer are in the ASGI scope: answers that are relayed do not pass through `send`."""

_EXPOSED = (
    b"x-request-id, x-disagg-proxy-error, x-disagg-proxy-dropped, x-disagg-proxy-overhead-us, server-timing, "
    b"retry-after"
)
_MAX_AGE = b"600"


class CorsMiddleware:
    """See the module's docstring. Credentials (cookies) are never allowed: keys travel in a header.

    Args:
        app: the rest of the stack.
        origins: allowed ones in lower case; `*` allows all.
    """

    def __init__(self, app: ASGIApp, *, origins: Iterable[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)
        self._all = b"*" in self._origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or answer a browser that asks whether it may send one."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"])
        origin: bytes | None = given.get(b"origin")
        allowed: Headers = []
        if self._all:
            allowed = [(b"access-control-allow-origin", b"*")]
        elif origin is not None and origin.lower() in self._origins:
            allowed = [(b"access-control-allow-origin", origin)]
        if allowed and origin is not None and scope["method"] == "OPTIONS":
            wanted = given.get(b"access-control-request-method")
            if wanted is not None:
                await self._preflight(allowed, given.get(b"access-control-request-headers"), send)
                return
        if allowed:
            allowed.append((b"access-control-expose-headers", _EXPOSED))
        if not self._all:
            allowed.append((b"vary", b"origin"))
        scope[RESPONSE_HEADERS] = allowed
        await self._app(scope, receive, _AddHeaders(send, allowed))

    async def _preflight(self, allowed: Headers, wanted: bytes | None, send: Send) -> None:
        headers = [
            *allowed,
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-max-age", _MAX_AGE),
            (b"vary", b"origin, access-control-request-headers"),
        ]
        if wanted is not None:
            headers.append((b"access-control-allow-headers", wanted))
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _AddHeaders:
    """Adds the headers to answers that do pass through `send`, unless they are there."""

    __slots__ = ("_headers", "_send")

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            there = list(message.get("headers", ()))
            names = {name for name, _ in there}
            message["headers"] = there + [header for header in self._headers if header[0] not in names]
        await self._send(message)
