"""GET /admin/: a page that shows what `/admin/status` tells, each second, and has buttons for the other admin routes.

The files beside this one are served as they are: no build step, nothing from other hosts. They hold nothing secret, so
that they are served without the admin token; the page asks for it.
"""

from __future__ import annotations

from pathlib import Path

from starlette.types import Receive, Scope, Send

from proxy.router import Routes

_FILES = {
    "/admin": ("index.html", b"text/html; charset=utf-8"),
    "/admin/page.css": ("page.css", b"text/css; charset=utf-8"),
    "/admin/page.js": ("page.js", b"text/javascript; charset=utf-8"),
    "/admin/server.js": ("server.js", b"text/javascript; charset=utf-8"),
    "/admin/figures.js": ("figures.js", b"text/javascript; charset=utf-8"),
    "/admin/tables.js": ("tables.js", b"text/javascript; charset=utf-8"),
    "/admin/icon.svg": ("icon.svg", b"image/svg+xml"),
}

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)


class PageFile:
    """One of the files, read once.

    Args:
        name: in this folder.
        content_type: its media type.
    """

    def __init__(self, name: str, content_type: bytes) -> None:
        self._body = Path(__file__).with_name(name).read_bytes()
        self._headers = [
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(self._body)),
            (b"content-security-policy", _POLICY),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            # The files belong together: those of another version must not mix in.
            (b"cache-control", b"no-store"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


def page_routes() -> Routes:
    """The page and what it needs."""
    return {path: {"GET": PageFile(*file)} for path, file in _FILES.items()}
