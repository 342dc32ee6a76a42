"""Keeps pages of other sites from using the admin routes through the browser of somebody who may; only without a token,
which such pages cannot send.

With every method that changes something browsers say in `origin` where a request comes from (Fetch standard, section
3.2), newer ones in `sec-fetch-site` too. Other clients send neither.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.config.container import is_loopback
from proxy.errors import CrossSite

_SAME = frozenset({b"same-origin", b"none"})


class SameOriginMiddleware:
    """See the module's docstring.

    The listener has a loopback address or a Unix socket. Over TCP it must be called by a name that can mean no other
    machine: a site may let its own name point here for a moment (DNS rebinding) and then is the same origin.

    Args:
        app: the admin routes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            CrossSite: it may come from a page of another site.
        """
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"")
        if host and _is_tcp(scope) and not is_loopback(_name(host)):
            raise CrossSite("without admin_token_file the host must be localhost or a loopback address")
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get(b"origin")
            site = headers.get(b"sec-fetch-site", b"none")
            if site not in _SAME or (origin is not None and origin.partition(b"://")[2] != host):
                raise CrossSite("the admin routes are not for pages of other sites")
        await self._app(scope, receive, send)


def _is_tcp(scope: Scope) -> bool:
    server = scope.get("server")
    return server is not None and server[1] is not None


def _name(host: bytes) -> str:
    """The host of a `host` header without its port."""
    text = host.decode("latin-1")
    name, colon, port = text.rpartition(":")
    if colon and port.isdigit():
        text = name
    return text.removeprefix("[").removesuffix("]")
