"""Raw-ASGI routing: (method, path) -> endpoint. Every endpoint is an ASGI application."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import MethodNotAllowed, NotFound
from proxy.lifecycle.record import RECORD

Routes = Mapping[str, Mapping[str, ASGIApp]]
"""path -> method -> endpoint. A path that ends in `/*` stands for all paths that begin with what is before the star."""

REST = "disagg.rest"
"""Where the part of the path that the star stands for is in the ASGI scope."""


class Router:
    """Exact paths first; a trailing slash is ignored. HEAD is served wherever GET is.

    Args:
        routes: the table; its paths are the only ones that appear as metric labels.
        root_path: prefix under which the proxy is mounted, as in ASGI; requests without it match as well, since
            some ingresses strip it and some do not.
    """

    def __init__(self, routes: Routes, root_path: str = "") -> None:
        self._routes = {path: methods for path, methods in routes.items() if not path.endswith("/*")}
        self._prefixes = {path.removesuffix("*"): m for path, m in routes.items() if path.endswith("/*")}
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            NotFound, MethodNotAllowed: the errors middleware answers.
        """
        path: str = scope["path"]
        methods = self._routes.get(path)
        if methods is None:
            path = self._normal(path)
            methods = self._routes.get(path)
            if methods is None:
                path, methods = self._below_a_prefix(path, scope)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = methods.get(method)
        if endpoint is None:
            allowed = sorted(methods) + (["HEAD"] if "GET" in methods else [])
            raise MethodNotAllowed(
                f"{scope['method']} is not allowed here", allow=", ".join(allowed).encode()
            )
        scope[RECORD].route = path
        await endpoint(scope, receive, send)

    def knows(self, path: str) -> bool:
        """Whether a route has this path, whatever its methods."""
        path = self._normal(path)
        return path in self._routes or any(map(path.startswith, self._prefixes))

    def _normal(self, path: str) -> str:
        return path.removeprefix(self._root_path).rstrip("/") or "/"

    def _below_a_prefix(self, path: str, scope: Scope) -> tuple[str, Mapping[str, ASGIApp]]:
        for prefix, methods in self._prefixes.items():
            if path.startswith(prefix):
                scope[REST] = path.removeprefix(prefix)
                return f"{prefix}*", methods
        raise NotFound(f"there is no route {path}")
