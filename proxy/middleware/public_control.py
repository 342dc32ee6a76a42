"""Control routes on the public port, for those who have the admin token; API keys are not asked for there."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.config.watched_file import WatchedFile
from proxy.middleware.admin_token import AdminTokenMiddleware
from proxy.router import Router, Routes


class PublicControlMiddleware:
    """Outside the API keys: a request has one authorization header, which here holds the admin token.

    Args:
        app: everything else.
        routes: the control routes.
        token: the present admin token.
        root_path: prefix under which the proxy may be mounted.
    """

    def __init__(self, app: ASGIApp, *, routes: Routes, token: WatchedFile[str], root_path: str = "") -> None:
        self._app = app
        self._router = Router(routes, root_path)
        self._control = AdminTokenMiddleware(self._router, token=token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            Unauthorized: a control route without the token.
        """
        app = self._control if self._router.knows(scope["path"]) else self._app
        await app(scope, receive, send)
