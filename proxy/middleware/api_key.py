"""Lets in who has one of the keys in `api_keys_file`, and notes the key's name."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.config.secrets import KeyRing
from proxy.config.watched_file import WatchedFile
from proxy.errors import Unauthorized
from proxy.lifecycle.record import RECORD
from proxy.middleware.bearer import bearer_token

OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready", "/metrics", "/prometheus/metrics"})
"""Orchestrators and scrapers have no keys."""


class ApiKeyMiddleware:
    """See the module's docstring.

    Args:
        app: the routes.
        keys: the known keys.
        root_path: prefix under which the proxy may be mounted.
        open_paths: may be asked for without a key.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: WatchedFile[KeyRing],
        root_path: str = "",
        open_paths: frozenset[str] = OPEN_PATHS,
    ) -> None:
        self._app = app
        self._keys = keys
        self._root_path = root_path
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            Unauthorized: no key, or an unknown one.
        """
        key = bearer_token(scope["headers"])
        name = self._keys.value.find(key) if key is not None else None
        if name is not None:
            scope[RECORD].key = name
        elif not self._is_open(scope["path"]):
            if key is None:
                raise Unauthorized(
                    "an API key is required: authorization: Bearer ...", code="missing_api_key"
                )
            raise Unauthorized("the API key is not known")
        await self._app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        inner = path.removeprefix(self._root_path).rstrip("/")
        return path in self._open_paths or inner in self._open_paths
