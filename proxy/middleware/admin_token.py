"""Lets in who has the token in `admin_token_file`."""

from __future__ import annotations

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.config.watched_file import WatchedFile
from proxy.errors import Unauthorized
from proxy.middleware.bearer import bearer_token


class AdminTokenMiddleware:
    """See the module's docstring.

    Args:
        app: the admin routes.
        token: the present token.
        open_paths: may be read without it; a trailing slash is ignored.
    """

    def __init__(
        self, app: ASGIApp, *, token: WatchedFile[str], open_paths: frozenset[str] = frozenset()
    ) -> None:
        self._app = app
        self._token = token
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            Unauthorized: no token, or a wrong one.
        """
        if scope["method"] in ("GET", "HEAD") and scope["path"].rstrip("/") in self._open_paths:
            await self._app(scope, receive, send)
            return
        given = bearer_token(scope["headers"])
        if given is None or not hmac.compare_digest(given, self._token.value.encode("ascii")):
            raise Unauthorized(
                "the admin token is required: authorization: Bearer ...", code="invalid_admin_token"
            )
        await self._app(scope, receive, send)
